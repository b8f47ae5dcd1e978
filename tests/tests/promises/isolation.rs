//! PostgreSQL with an isolation of transactions that is stricter than usual.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Client, Server, Stage, TestDb, World, effects_app};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres};
use tokio::task::JoinSet;
use tower_idempotency::Tx;

/// A world in which every transaction has this isolation.
async fn world(isolation: &str) -> World<Postgres> {
    let database = Postgres::database().await;
    let options: PgConnectOptions = database.url().parse().unwrap();
    let options = options.options([("default_transaction_isolation", isolation)]);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    World::over(database, pool).await
}

const TOKEN: &str = "\\x00112233445566778899aabbccddeeff";

const STRICT: [&str; 2] = ["repeatable read", "serializable"];

/// R31, R50: many arrivals of one key at once have one effect, and none is told anything but its
/// result or to come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_arrivals_have_one_effect() {
    for isolation in STRICT {
        let world = world(isolation).await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);
        let mut arrivals = JoinSet::new();
        for _ in 0..40 {
            let client = client.clone();
            arrivals
                .spawn(async move { client.post("/effects", "k", &json!({"note": "x"})).await });
        }
        let mut created = 0;
        for answer in arrivals.join_all().await {
            if answer.status == StatusCode::CREATED {
                created += 1;
            } else {
                assert_eq!(answer.json()["retryable"], true, "{isolation}: {answer:?}");
            }
        }
        assert!(created > 0, "{isolation}: the one that ran");
        assert_eq!(world.effects("x").await, 1, "{isolation}");
        world.end().await;
    }
}

/// The statements that claim, for one and for many, as they were sent, and the types of their
/// parameters.
async fn claiming(world: &World<Postgres>) -> Vec<(String, String)> {
    let server = Server::start(effects_app(&world.layer())).await;
    let client = Client::new(&server);
    // So many that some are claimed by one statement.
    let mut arrivals = JoinSet::new();
    for key in 0..16 {
        let client = client.clone();
        let act = json!({"note": "x"});
        arrivals.spawn(async move { client.post("/effects", &key.to_string(), &act).await });
    }
    arrivals.join_all().await;
    let sql = "SELECT statement, array_to_string(parameter_types, ', ') \
               FROM pg_prepared_statements \
               WHERE statement LIKE '%INSERT INTO tower_idempotency.record%' \
                   AND cardinality(parameter_types) > 0";
    let claims: Vec<(String, String)> = sqlx::query_as(sql).fetch_all(&world.pool).await.unwrap();
    assert_eq!(claims.len(), 2, "one for a claim, one for many: {claims:?}");
    claims
}

/// Statements that claim a key of the owner `o` in a transaction of that isolation.
fn claim_of(statement: &str, types: &str, key: &str, isolation: &str) -> [String; 4] {
    let values = match types.contains("[]") {
        false => format!("'o', 'publish', '{key}', '{TOKEN}', 'hs1:', 1000"),
        true => format!(
            "ARRAY['o'], ARRAY['publish'], ARRAY['{key}'], ARRAY['{TOKEN}'::bytea], \
             ARRAY['hs1:'], ARRAY[1000]"
        ),
    };
    [
        format!("PREPARE claim ({types}) AS {statement}"),
        format!("BEGIN ISOLATION LEVEL {isolation}"),
        format!("EXECUTE claim ({values})"),
        "COMMIT".to_owned(),
    ]
}

/// Holds inserts up, after what came before them in their statements.
struct Gate(PgConnection);

impl Gate {
    async fn shut(world: &World<Postgres>) -> Self {
        const SQL: &str = "\
            CREATE OR REPLACE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql
                SET lock_timeout = 0 AS
                $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$;
            CREATE OR REPLACE TRIGGER gate BEFORE INSERT ON tower_idempotency.record
                FOR EACH ROW EXECUTE FUNCTION wait_at_gate();
            SELECT pg_advisory_lock(1)";
        let mut conn = PgConnection::connect(world.database.url()).await.unwrap();
        Postgres::run(&mut conn, SQL).await.unwrap();
        Self(conn)
    }

    /// Ends when so many wait.
    async fn reached(&mut self, by: i64) {
        let waiting = "SELECT count(*) FROM pg_stat_activity \
             WHERE wait_event = 'advisory' AND datname = current_database()";
        loop {
            let count = sqlx::query_scalar(waiting).fetch_one(&mut self.0);
            let count: i64 = count.await.unwrap();
            if count >= by {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn open(mut self) {
        let unlock = "SELECT pg_advisory_unlock(1)";
        Postgres::run(&mut self.0, unlock).await.unwrap();
    }
}

/// Runs statements on a connection of their own.
async fn run_all(url: String, statements: [String; 4]) -> sqlx::Result<()> {
    let mut conn = PgConnection::connect(&url).await?;
    for sql in statements {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    }
    Ok(())
}

/// Two claims of new keys are no conflict where transactions are serializable, though both find
/// nothing in the same page of the index: their statement does not look before it inserts there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_keys_do_not_fail_each_other() {
    let world = World::<Postgres>::with_connections(1).await;
    for (number, (statement, types)) in claiming(&world).await.into_iter().enumerate() {
        let mut gate = Gate::shut(&world).await;
        let mut claiming = JoinSet::new();
        for side in ["one", "another"] {
            let key = format!("{side}-{number}");
            let statements = claim_of(&statement, &types, &key, "SERIALIZABLE");
            claiming.spawn(run_all(world.database.url().to_owned(), statements));
        }
        gate.reached(2).await;
        gate.open().await;
        for claimed in claiming.join_all().await {
            claimed.expect("no conflict");
        }
    }
    world.end().await;
}

/// R31: a key that somebody has claimed since the statement looked stays theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_claimed_meanwhile_is_left_alone() {
    let world = World::<Postgres>::with_connections(1).await;
    for (number, (statement, types)) in claiming(&world).await.into_iter().enumerate() {
        let mut gate = Gate::shut(&world).await;
        let key = format!("meanwhile-{number}");
        let statements = claim_of(&statement, &types, &key, "READ COMMITTED");
        let claiming = tokio::spawn(run_all(world.database.url().to_owned(), statements));
        gate.reached(1).await;
        let theirs = format!(
            "SET LOCAL session_replication_role = replica; \
             INSERT INTO tower_idempotency.record \
                 (owner, operation, key, state, claim_token, claimed_at, stale_at, fingerprint) \
             VALUES ('o', 'publish', '{key}', 'claimed', decode(md5('theirs'), 'hex'), now(), \
                 now() + interval '1 hour', 'hs1:')"
        );
        let insert = sqlx::raw_sql(AssertSqlSafe(theirs)).execute(&world.pool);
        insert.await.expect("a claim without triggers");
        gate.open().await;
        claiming.await.unwrap().expect("a claim that finds nothing");
        let kept = "SELECT claim_token = decode(md5('theirs'), 'hex') \
                    FROM tower_idempotency.record WHERE key = $1";
        let kept = sqlx::query_scalar(kept).bind(&key).fetch_one(&world.pool);
        let kept: bool = kept.await.unwrap();
        assert!(kept, "{statement}");
    }
    world.end().await;
}

/// A handler that reads, writes, and stops in its first run.
fn reads_and_writes(world: &World<Postgres>, stage: &Arc<Stage>) -> Router {
    let (stage, runs) = (Arc::clone(stage), Arc::new(AtomicUsize::new(0)));
    let handler = move |tx: Tx<Postgres>| {
        let (stage, runs) = (Arc::clone(&stage), Arc::clone(&runs));
        async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            let count = "SELECT count(*) FROM effect";
            Postgres::run(&mut conn, count).await.expect("a count");
            Postgres::insert(&mut conn, "x").await.expect("an insert");
            if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                stage.pause().await;
            }
            Ok::<_, Response>(StatusCode::CREATED)
        }
    };
    Router::new().route("/", post(handler).layer(world.layer()))
}

/// R61: a handler whose transaction cannot be serialized with one that has committed is rolled back
/// and freed, and answered 503 `conflict-retry`; the retry is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serialisation_failure_can_be_retried() {
    let world = world("serializable").await;
    let stage = Stage::new();
    let server = Server::start(reads_and_writes(&world, &stage)).await;
    let client = Client::new(&server);
    let sent = tokio::spawn({
        let client = client.clone();
        async move { client.post("/", "k", &json!({})).await }
    });
    stage.reached().await;
    // Each of the two has read what the other writes.
    let mut conn = world.pool.acquire().await.unwrap();
    let mut other = conn.begin().await.unwrap();
    let count = "SELECT count(*) FROM effect";
    Postgres::run(&mut other, count).await.unwrap();
    Postgres::insert(&mut other, "other").await.unwrap();
    other.commit().await.unwrap();
    drop(conn);
    stage.go_on();

    let answer = sent.await.unwrap();
    assert_eq!(answer.problem(), "conflict-retry");
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(world.effects("x").await, 0);
    assert_eq!(world.records("k", "claimed").await, 0, "the key is free");
    let retried = client.post("/", "k", &json!({})).await;
    assert_eq!(retried.status, StatusCode::CREATED);
    assert_eq!(world.effects("x").await, 1);
    world.end().await;
}

/// R60: a claim that was taken over after its transaction had its snapshot shows as a conflict at
/// completion, and is answered as a lost one all the same: with the heir's result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_claim_is_no_conflict() {
    for isolation in STRICT {
        let world = world(isolation).await;
        let stage = Stage::new();
        let server = Server::start(reads_and_writes(&world, &stage)).await;
        let client = Client::new(&server);
        let sent = tokio::spawn({
            let client = client.clone();
            async move { client.post("/", "k", &json!({})).await }
        });
        stage.reached().await;
        world.age(Duration::from_secs(3_600)).await;
        // Under `serializable` one of the two may fail for what it has read.
        let heir = loop {
            let heir = client.post("/", "k", &json!({})).await;
            if heir.status == StatusCode::CREATED {
                break heir;
            }
            assert_eq!(heir.problem(), "conflict-retry", "{isolation}");
        };
        assert!(!heir.is_replay());
        stage.go_on();
        let late = sent.await.unwrap();
        assert_eq!(late.status, StatusCode::CREATED, "{isolation}: {late:?}");
        assert!(late.is_replay(), "{isolation}");
        assert_eq!(world.effects("x").await, 1, "{isolation}");
        world.end().await;
    }
}

/// R34: claims are renewed until the transaction begins, once more just then, and not any more
/// afterwards: a snapshot that is older than a renewal could not complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_ends_where_the_snapshot_begins() {
    for isolation in STRICT {
        let world = world(isolation).await;
        let stage = Stage::new();
        let handler = {
            let stage = Arc::clone(&stage);
            move |tx: Tx<Postgres>| {
                let stage = Arc::clone(&stage);
                async move {
                    // Less than the third of `stale_after` at which it would be renewed anyway.
                    tokio::time::sleep(Duration::from_millis(1_200)).await;
                    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
                    Postgres::insert(&mut conn, "x").await.expect("an insert");
                    stage.pause().await;
                    Ok::<_, Response>(StatusCode::CREATED)
                }
            }
        };
        let layer = world.layer().stale_after(Duration::from_secs(4));
        let layer = layer.renew_claims(Duration::from_secs(60));
        let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
        let client = Client::new(&server);
        let sent = tokio::spawn({
            let client = client.clone();
            async move { client.post("/", "k", &json!({})).await }
        });
        stage.reached().await;
        let left = "SELECT (extract(epoch FROM stale_at - clock_timestamp()) * 1000)::bigint \
                    FROM tower_idempotency.record WHERE key = $1";
        let first = Postgres::count(&world.pool, left, "k").await;
        assert!(
            first > 2_800,
            "{isolation}: {first} ms, renewed just before"
        );
        // Long enough for another renewal, if there were any.
        tokio::time::sleep(Duration::from_millis(1_600)).await;
        let second = Postgres::count(&world.pool, left, "k").await;
        assert!(
            second <= first - 1_600,
            "{isolation}: {first} and {second} ms"
        );
        stage.go_on();
        let answer = sent.await.unwrap();
        assert_eq!(
            answer.status,
            StatusCode::CREATED,
            "{isolation}: {answer:?}"
        );
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }
}
