//! Handlers that do what they must not.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Answer, Client, Server, TestDb, World, on_every_database};
use serde_json::json;
use sqlx::Connection as _;
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
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
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
        for deed in ["commit", "commit-500", "rollback", "rollback-begin", "begin-with", "commit"] {
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

    /// R50: a nested transaction that was forgotten does not make an uncommitted effect look
    /// committed, nor does its connection do harm afterwards.
    async fn a_forgotten_nested_transaction_does_no_harm<D>() {
        let world = World::<D>::with_connections(1).await;
        let server = server(&world, &Hiding::default()).await;
        let client = Client::new(&server);
        let answer = client.post("/nested-forgotten", "k", &json!({})).await;
        let expected = i64::from(answer.status == StatusCode::CREATED);
        assert_eq!(world.effects("x").await, expected);
        assert_eq!(world.records("k", "completed").await, expected);
        for key in ["k2", "k3"] {
            assert_eq!(client.post("/nested", key, &json!({})).await.status, StatusCode::CREATED);
        }
        assert_eq!(world.effects("x").await, expected + 2);
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
    let world = World::<sqlx::Postgres>::new().await;
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
