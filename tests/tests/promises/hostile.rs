//! Handlers that do what they must not.

use std::future::Future as _;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Answer, Client, Server, TestDb, World, on_every_database};
use serde_json::json;
use sqlx::{Connection as _, MySql, MySqlConnection, Postgres};
use tower_idempotency::{Tx, TxConnection};

/// Where a handler leaves its guard.
type Hiding<D> = Arc<Mutex<Option<TxConnection<D>>>>;

async fn misbehave<D: TestDb>(
    tx: Tx<D>,
    deed: String,
    hiding: Hiding<D>,
) -> Result<Response, Response> {
    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
    D::insert(&mut conn, "x").await.expect("an insert");
    let created = || StatusCode::CREATED.into_response();
    match deed.as_str() {
        "leak" => *hiding.lock().unwrap() = Some(conn),
        "leak-500" => {
            *hiding.lock().unwrap() = Some(conn);
            return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        }
        "commit" => D::run(&mut conn, "COMMIT").await.expect("a commit"),
        "commit-500" => {
            D::run(&mut conn, "COMMIT").await.expect("a commit");
            return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        }
        "rollback" => D::run(&mut conn, "ROLLBACK").await.expect("a roll-back"),
        "rollback-begin" => {
            D::run(&mut conn, "ROLLBACK; BEGIN")
                .await
                .expect("another transaction");
            D::insert(&mut conn, "x").await.expect("an insert");
        }
        // Rolls the outer transaction back, in sqlx 0.9; what follows is in autocommit.
        "begin-with" => {
            assert!(conn.begin_with("BEGIN").await.is_err());
            D::insert(&mut conn, "x").await.expect("an insert");
        }
        "swallow" => {
            assert!(
                D::run(&mut conn, "INSERT INTO effect (note) VALUES (NULL)")
                    .await
                    .is_err()
            );
        }
        "nested" => {
            let mut inner = conn.begin().await.expect("a savepoint");
            D::insert(&mut inner, "x").await.expect("an insert");
            inner
                .rollback()
                .await
                .expect("a roll-back to the savepoint");
        }
        "nested-dropped" => {
            let mut inner = conn.begin().await.expect("a savepoint");
            D::insert(&mut inner, "x").await.expect("an insert");
        }
        "nested-forgotten" => {
            let inner = conn.begin().await.expect("a savepoint");
            #[expect(clippy::mem_forget, reason = "what the worst handler might do")]
            std::mem::forget(inner);
        }
        "nested-forgotten-deep" => {
            for _ in 0..10 {
                let inner = conn.begin().await.expect("a savepoint");
                #[expect(clippy::mem_forget, reason = "what the worst handler might do")]
                std::mem::forget(inner);
            }
        }
        // sqlx's count and the database's part, without anything forgotten.
        "outer-savepoint" => {
            D::run(&mut conn, "SAVEPOINT a").await.expect("a savepoint");
            let mut inner = conn.begin().await.expect("another");
            D::run(&mut inner, "RELEASE SAVEPOINT a")
                .await
                .expect("a release");
            drop(inner);
        }
        "commit-begin-fail" => {
            D::run(&mut conn, "COMMIT; BEGIN")
                .await
                .expect("another transaction");
            let failed = D::run(&mut conn, "INSERT INTO effect (note) VALUES (NULL)").await;
            assert!(failed.is_err());
        }
        "commit-begin-fail-500" => {
            D::run(&mut conn, "COMMIT; BEGIN")
                .await
                .expect("another transaction");
            let failed = D::run(&mut conn, "INSERT INTO effect (note) VALUES (NULL)").await;
            assert!(failed.is_err());
            return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        }
        "forged-savepoint" => {
            let sql = "ROLLBACK; BEGIN; SAVEPOINT tower_idempotency";
            D::run(&mut conn, sql).await.expect("another transaction");
        }
        "ddl" => D::run(&mut conn, "CREATE TABLE made (n int)")
            .await
            .expect("a table"),
        "session" => {
            let sql = match D::NAME {
                "MySQL" => "SET autocommit = 0",
                "PostgreSQL" => "SET LOCAL search_path = pg_catalog; SET LOCAL lock_timeout = 1",
                _ => "PRAGMA cache_size = 10",
            };
            D::run(&mut conn, sql).await.expect("a setting");
        }
        "hold-and-acquire" => {
            let second = tx.acquire().await;
            assert!(second.is_err_and(|error| error.is_held()));
        }
        "panic" => panic!("with the guard held"),
        deed => panic!("no such deed: {deed}"),
    }
    Ok(created())
}

async fn server<D: TestDb>(world: &World<D>, hiding: &Hiding<D>) -> Server {
    let hiding = Arc::clone(hiding);
    let handler =
        move |Path(deed): Path<String>, tx: Tx<D>| misbehave(tx, deed, Arc::clone(&hiding));
    Server::start(Router::new().route("/{deed}", post(handler).layer(world.layer()))).await
}

on_every_database! {
    /// R63: a guard that outlives the handler is answered 500 at once; when it is dropped, its
    /// writes are rolled back and the key is free.
    async fn a_leaked_transaction_commits_nothing<D>() {
        let world = World::<D>::new().await;
        let hiding = Hiding::<D>::default();
        let server = server(&world, &hiding).await;
        let client = Client::new(&server);
        for (deed, problem) in [("/leak", Some("transaction-leaked")), ("/leak-500", None)] {
            let answer = client.post(deed, "k", &json!({})).await;
            assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
            if let Some(problem) = problem {
                assert_eq!(answer.problem(), problem);
            }
            assert_eq!(world.effects("x").await, 0);
            assert_eq!(client.post(deed, "k", &json!({})).await.problem(), "in-progress");
            drop(hiding.lock().unwrap().take());
            while world.records("k", "claimed").await != 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(world.effects("x").await, 0);
        }
        world.end().await;
    }

    /// R64: where the transaction was ended by somebody else, an effect may be there: 500, and the
    /// key never runs again.
    async fn a_lost_transaction_never_runs_again<D>() {
        let world = World::<D>::new().await;
        let server = server(&world, &Hiding::default()).await;
        let client = Client::new(&server);
        for deed in ["commit", "commit-500", "rollback", "rollback-begin", "begin-with", "commit-begin-fail", "commit-begin-fail-500", "forged-savepoint", "commit"] {
            let before = world.effects("x").await;
            let path = format!("/{deed}");
            let key = format!("{deed}-{before}");
            let answer = client.post(&path, &key, &json!({})).await;
            assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{deed}");
            assert_eq!(answer.problem(), "transaction-lost", "{deed}");
            let after = world.effects("x").await;
            assert!(after - before <= 1, "{deed}");
            let again = client.post(&path, &key, &json!({})).await;
            assert_eq!((again.status, again.problem()), (StatusCode::GONE, "outcome-unknown".into()), "{deed}");
            assert_eq!(world.effects("x").await, after, "{deed} does not run again");
        }
        world.end().await;
    }

    /// R50: nested transactions are the handler's own business, as long as it ends them.
    async fn nested_transactions_are_fine<D>() {
        let world = World::<D>::new().await;
        let server = server(&world, &Hiding::default()).await;
        let client = Client::new(&server);
        for (i, deed) in ["/nested", "/nested-dropped", "/hold-and-acquire"].into_iter().enumerate() {
            let answer = client.post(deed, deed, &json!({})).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{deed}");
            assert_eq!(world.effects("x").await, i64::try_from(i).unwrap() + 1, "{deed}");
            assert!(client.post(deed, deed, &json!({})).await.is_replay());
        }
        world.end().await;
    }

    /// R50: nested transactions that were forgotten, or ended by hand so that sqlx's count and the
    /// database's part, make no uncommitted effect look committed, and their connections do no harm
    /// afterwards.
    async fn nested_transactions_that_do_not_add_up_do_no_harm<D>() {
        let world = World::<D>::with_connections(1).await;
        let server = server(&world, &Hiding::default()).await;
        let client = Client::new(&server);
        let mut expected = 0;
        for deed in ["nested-forgotten", "nested-forgotten-deep", "outer-savepoint"] {
            let path = format!("/{deed}");
            let answer = client.post(&path, deed, &json!({})).await;
            let committed = i64::from(answer.status == StatusCode::CREATED);
            expected += committed;
            assert_eq!(world.effects("x").await, expected, "{deed}: {answer:?}");
            assert_eq!(world.records(deed, "completed").await, committed, "{deed}");
            assert_eq!(world.records(deed, "claimed").await, 0, "{deed}");
            for key in ["after-1", "after-2"] {
                let key = format!("{key}-{deed}");
                let after = client.post("/nested", &key, &json!({})).await;
                assert_eq!(after.status, StatusCode::CREATED, "after {deed}");
                expected += 1;
                assert_eq!(world.effects("x").await, expected, "after {deed}");
            }
        }
        world.end().await;
    }

    /// R8, R50: likewise where no record is kept.
    async fn unclaimed_transactions_that_do_not_add_up_do_no_harm<D>() {
        let world = World::<D>::with_connections(1).await;
        let handler = |Path(deed): Path<String>, tx: Tx<D>| misbehave(tx, deed, Hiding::default());
        let app = Router::new().route("/{deed}", axum::routing::any(handler).layer(world.layer()));
        let server = Server::start(app).await;
        let client = Client::new(&server);
        let mut expected = 0;
        for deed in ["nested-forgotten", "nested-forgotten-deep", "outer-savepoint", "nested"] {
            let request = client.request(http::Method::PUT, &format!("/{deed}"));
            let answer = Answer::of(request).await;
            expected += i64::from(answer.status == StatusCode::CREATED);
            assert_eq!(world.effects("x").await, expected, "{deed}: {answer:?}");
            let keyed = client.post("/nested", &format!("after-{deed}"), &json!({})).await;
            assert_eq!(keyed.status, StatusCode::CREATED, "after {deed}");
            expected += 1;
            assert_eq!(world.effects("x").await, expected, "after {deed}");
        }
        let lost = Answer::of(client.request(http::Method::PUT, "/commit")).await;
        assert_eq!(lost.problem(), "transaction-lost");
        assert_eq!(lost.json()["retryable"], false);
        world.end().await;
    }

    /// R50, R64: a handler that changes the schema is fine where that is part of the transaction. MySQL
    /// commits before it does so: an effect is there, and the key never runs again.
    async fn a_change_of_the_schema_is_in_the_transaction_or_ends_it<D>() {
        let world = World::<D>::new().await;
        let server = server(&world, &Hiding::default()).await;
        let client = Client::new(&server);
        let answer = client.post("/ddl", "k", &json!({})).await;
        assert_eq!(world.effects("x").await, 1);
        let again = client.post("/ddl", "k", &json!({})).await;
        if D::NAME == "MySQL" {
            assert_eq!(answer.problem(), "transaction-lost");
            assert_eq!(again.problem(), "outcome-unknown");
        } else {
            assert_eq!(answer.status, StatusCode::CREATED);
            assert!(again.is_replay());
        }
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }

    /// R50: settings that a handler leaves on its connection break no promise, also where they would
    /// make the statements after it look done which are not.
    async fn settings_of_a_handler_do_no_harm<D>() {
        let world = World::<D>::with_connections(1).await;
        let server = server(&world, &Hiding::default()).await;
        let client = Client::new(&server);
        for (expected, deed) in (1..).zip(["/session", "/nested", "/session", "/session"]) {
            let key = format!("k{expected}");
            let answer = client.post(deed, &key, &json!({})).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{expected}");
            assert_eq!(world.effects("x").await, expected);
            assert_eq!(world.records(&key, "completed").await, 1);
            assert!(client.post(deed, &key, &json!({})).await.is_replay());
        }
        world.end().await;
    }

    /// R50, R61: a handler that drops a statement on its way, as a time-out around it does, and goes on,
    /// gets an answer that is the truth, and no later request suffers from its connection.
    async fn a_dropped_statement_does_no_harm<D>() {
        let world = World::<D>::with_connections(1).await;
        let handler = |Path(polls): Path<usize>, tx: Tx<D>| async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            let note = format!("polled-{polls}");
            let mut insert = Box::pin(D::insert(&mut conn, &note));
            let mut polled = 0;
            std::future::poll_fn(|context| {
                if polled == polls {
                    return std::task::Poll::Ready(());
                }
                polled += 1;
                insert.as_mut().poll(context).map(drop)
            })
            .await;
            Ok::<_, Response>(StatusCode::CREATED)
        };
        let app = Router::new().route("/{polls}", post(handler).layer(world.layer()));
        let server = Server::start(app).await;
        let client = Client::new(&server);
        let mut committed = 0;
        for polls in (0..12).chain([1_000]) {
            let key = format!("k{polls}");
            let effects = async || world.effects(&format!("polled-{polls}")).await;
            let answer = client.post(&format!("/{polls}"), &key, &json!({})).await;
            match answer.status {
                StatusCode::CREATED => {
                    assert_eq!(world.records(&key, "completed").await, 1, "{polls}");
                    committed += effects().await;
                }
                StatusCode::SERVICE_UNAVAILABLE => {
                    assert_eq!(world.records(&key, "claimed").await, 0, "{polls}");
                    assert_eq!(effects().await, 0, "{polls}");
                }
                status => panic!("{polls}: {status}"),
            }
        }
        assert!(committed >= 1, "a statement that is not dropped has its effect");
        world.end().await;
    }

    /// R55: a panic with the guard held leaves nothing.
    async fn a_panic_with_the_guard_held_leaves_nothing<D>() {
        let world = World::<D>::new().await;
        let server = server(&world, &Hiding::default()).await;
        let client = Client::new(&server);
        let request = client.request(http::Method::POST, "/panic").header("idempotency-key", "k");
        assert!(Answer::try_of(request).await.is_err());
        assert_eq!(world.effects("x").await, 0);
        assert_eq!(world.records("k", "claimed").await, 0);
        world.end().await;
    }
}

/// R61: a statement that failed and was swallowed aborts the transaction on PostgreSQL, where COMMIT
/// would then say that all is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swallowed_failure_is_no_success() {
    let world = World::<Postgres>::new().await;
    let server = server(&world, &Hiding::default()).await;
    let client = Client::new(&server);
    let answer = client.post("/swallow", "k", &json!({})).await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem()),
        (500, "commit-failed".into())
    );
    assert_eq!(world.effects("x").await, 0);
    assert_eq!(world.records("k", "claimed").await, 0, "the key is free");
    world.end().await;
}

/// R64: a nested `begin_with` that failed has rolled the transaction back, in sqlx 0.9, and what follows
/// is in autocommit. The key does not run again, though the pool has no connection to ask with, and though
/// the record cannot be marked for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_transaction_survives_a_short_outage() {
    for outage in [Duration::from_millis(500), Duration::from_millis(2_500)] {
        let world = World::<Postgres>::with_connections(1).await;
        let pool = world.pool.clone();
        let handler = move |tx: Tx<Postgres>| {
            let pool = pool.clone();
            async move {
                let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
                assert!(conn.begin_with("BEGIN").await.is_err());
                Postgres::insert(&mut conn, "x").await.expect("an insert");
                drop(conn);
                let (taken, waiting) = tokio::sync::oneshot::channel();
                tokio::spawn(async move {
                    let acquiring = pool.acquire();
                    let _ = taken.send(());
                    let _held = acquiring.await;
                    tokio::time::sleep(outage).await;
                });
                let _ = waiting.await;
                Ok::<_, Response>(StatusCode::CREATED)
            }
        };
        let layer = world.layer().store_timeout(Duration::from_millis(300));
        let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
        let client = Client::new(&server);
        let first = client.post("/", "k", &json!({})).await;
        assert_eq!(first.problem(), "transaction-lost", "{outage:?}");
        assert_eq!(world.effects("x").await, 1);
        let last = loop {
            let answer = client.post("/", "k", &json!({})).await;
            if answer.status == StatusCode::GONE {
                break answer;
            }
            assert_ne!(answer.status, StatusCode::CREATED, "{outage:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(last.problem(), "outcome-unknown");
        assert_eq!(world.effects("x").await, 1, "{outage:?}");
        world.end().await;
    }
}

/// R55, R64: on MySQL and MariaDB a deadlock rolls the whole transaction back. A handler that fails with it
/// is answered as it says, and its key is free; one that swallows it, or has committed by hand before it,
/// is not believed, and its key never runs again. What it wrote after the deadlock is not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_a_failure_or_the_end() {
    let world = World::<MySql>::new().await;
    let mut conn = world.pool.acquire().await.unwrap();
    let tables = "CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL); \
         INSERT INTO counter VALUES (1, 0), (2, 0)";
    MySql::run(&mut conn, tables).await.unwrap();
    drop(conn);
    let pool = world.pool.clone();
    let handler = move |Path((deed, retry)): Path<(String, bool)>, tx: Tx<MySql>| {
        let pool = pool.clone();
        async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            MySql::insert(&mut conn, &deed).await.unwrap();
            if retry {
                return Ok(StatusCode::CREATED);
            }
            match deed.as_str() {
                "commits" => MySql::run(&mut conn, "COMMIT; START TRANSACTION")
                    .await
                    .unwrap(),
                "changes" => MySql::run(&mut conn, "CREATE TABLE made (n int); START TRANSACTION")
                    .await
                    .unwrap(),
                _ => {}
            }
            let count = async |conn: &mut MySqlConnection, sql| MySql::run(conn, sql).await;
            let mut inner = conn.begin().await.unwrap();
            let mut other = pool.begin().await.unwrap();
            count(&mut inner, "UPDATE counter SET n = n + 1 WHERE id = 1")
                .await
                .unwrap();
            // It has more to lose, so it is not the one that is rolled back.
            for _ in 0..20 {
                MySql::insert(&mut other, "other").await.unwrap();
            }
            count(&mut other, "UPDATE counter SET n = n + 1 WHERE id = 2")
                .await
                .unwrap();
            let waiting = tokio::spawn(async move {
                count(&mut other, "UPDATE counter SET n = n + 1 WHERE id = 1")
                    .await
                    .unwrap();
                other.rollback().await.unwrap();
            });
            let deadlock = count(&mut inner, "UPDATE counter SET n = n + 1 WHERE id = 2").await;
            waiting.await.unwrap();
            assert!(deadlock.is_err_and(|error| error.to_string().contains("1213")));
            drop(inner);
            if deed.starts_with("swallows") {
                // The first is given the error of the inner transaction's end.
                assert!(MySql::insert(&mut conn, &deed).await.is_err());
                MySql::insert(&mut conn, &deed).await.unwrap();
            }
            if deed == "swallows" {
                return Ok(StatusCode::CREATED);
            }
            Err::<_, Response>(StatusCode::IM_A_TEAPOT.into_response())
        }
    };
    let app = Router::new().route(
        "/{deed}/{retry}",
        post(handler).layer(world.layer().ignore_path()),
    );
    let server = Server::start(app).await;
    let client = Client::new(&server);
    for (deed, effects) in [
        ("fails", 1),
        ("swallows", 0),
        ("swallows-and-fails", 0),
        ("commits", 1),
        ("changes", 1),
    ] {
        let first = client
            .post(&format!("/{deed}/false"), deed, &json!({}))
            .await;
        let retry = client
            .post(&format!("/{deed}/true"), deed, &json!({}))
            .await;
        if deed == "fails" {
            assert_eq!(first.status, StatusCode::IM_A_TEAPOT);
            assert_eq!(retry.status, StatusCode::CREATED);
        } else {
            assert_eq!(first.problem(), "transaction-lost", "{deed}");
            assert_eq!(retry.problem(), "outcome-unknown", "{deed}");
        }
        assert_eq!(world.effects(deed).await, effects, "{deed}");
    }
    let begun = "SELECT count(*) FROM tower_idempotency_begun WHERE token <> $1";
    assert_eq!(MySql::count(&world.pool, begun, "").await, 0);
    world.end().await;
}

/// R61: on MySQL and MariaDB a transaction may be rolled back as a whole while it is completed, for a
/// deadlock or a conflict with another node. Nothing is there then, so the key is free, and a retry
/// runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_at_completion_frees_the_key() {
    let world = World::<MySql>::new().await;
    let mut conn = world.pool.acquire().await.unwrap();
    let tables = "CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL); \
         INSERT INTO counter VALUES (1, 0)";
    MySql::run(&mut conn, tables).await.unwrap();
    drop(conn);
    let (pool, runs) = (world.pool.clone(), Arc::new(AtomicUsize::new(0)));
    let handler = move |tx: Tx<MySql>| {
        let (pool, first) = (pool.clone(), runs.fetch_add(1, SeqCst) == 0);
        async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            let count = "UPDATE counter SET n = n + 1 WHERE id = 1";
            MySql::run(&mut conn, count).await.unwrap();
            MySql::insert(&mut conn, "x").await.unwrap();
            if first {
                let mut other = pool.begin().await.unwrap();
                // It has more to lose, so it is not the one that is rolled back.
                for _ in 0..20 {
                    MySql::insert(&mut other, "other").await.unwrap();
                }
                let lock = "SELECT * FROM tower_idempotency_record FOR UPDATE";
                MySql::run(&mut other, lock).await.unwrap();
                tokio::spawn(async move {
                    MySql::run(&mut other, count).await.unwrap();
                    other.rollback().await.unwrap();
                });
            }
            Ok::<_, Response>(StatusCode::CREATED)
        }
    };
    let app = Router::new().route("/", post(handler).layer(world.layer()));
    let server = Server::start(app).await;
    let client = Client::new(&server);
    let answer = client.post("/", "k", &json!({})).await;
    assert_eq!(answer.problem(), "conflict-retry");
    assert_eq!(world.effects("x").await, 0);
    let again = client.post("/", "k", &json!({})).await;
    assert_eq!(again.status, StatusCode::CREATED);
    assert_eq!(world.effects("x").await, 1);
    world.end().await;
}
