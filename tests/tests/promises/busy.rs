//! Another process holds a lock of the SQLite file.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Answer, Client, Server, Stage, TestDb, World, effects_app};
use serde_json::json;
use sqlx::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use tower_idempotency::{IdempotencyLayer, SqlxStore, Tx};

/// Another process that has the file open. Killed where it is dropped.
struct Other {
    _process: Child,
    orders: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
}

impl Other {
    async fn start(world: &World<Sqlite>) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_hold-lock"))
            .arg(world.database.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (orders, words) = (process.stdin.take(), process.stdout.take());
        Self {
            _process: process,
            orders: orders.unwrap(),
            words: BufReader::new(words.unwrap()).lines(),
        }
    }

    /// Returns when it is done: `write`, `read` or `release`.
    async fn order(&mut self, order: &str) {
        let line = format!("{order}\n");
        self.orders.write_all(line.as_bytes()).await.unwrap();
        let word = self.words.next_line().await.unwrap();
        assert_eq!(word.as_deref(), Some("done"), "{order}");
    }
}

/// A pool that waits for no lock for longer than a tenth of a second.
async fn impatient(journal: SqliteJournalMode) -> World<Sqlite> {
    let database = Sqlite::database().await;
    let options: SqliteConnectOptions = database.url().parse().unwrap();
    let options = options
        .journal_mode(journal)
        .busy_timeout(Duration::from_millis(100));
    let pool = SqlitePoolOptions::new().max_connections(4);
    let pool = pool.connect_with(options).await.unwrap();
    World::over(database, pool).await
}

/// A handler that stops before its transaction, after its read or after its write, or has none.
fn staged(
    layer: &IdempotencyLayer<SqlxStore<Sqlite>>,
    stage: &Arc<Stage>,
    place: &'static str,
) -> Router {
    let stage = Arc::clone(stage);
    let handler = move |tx: Tx<Sqlite>| {
        let stage = Arc::clone(&stage);
        async move {
            if place == "without" {
                stage.pause().await;
                return Ok(StatusCode::CREATED);
            }
            if place == "before" {
                stage.pause().await;
            }
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            if place == "read" {
                let read = sqlx::query("SELECT note FROM effect");
                read.fetch_all(&mut *conn).await.expect("a read");
                stage.pause().await;
            }
            Sqlite::insert(&mut conn, "x").await.expect("an insert");
            if place == "after" {
                stage.pause().await;
            }
            Ok::<_, Response>(StatusCode::CREATED)
        }
    };
    Router::new().route("/", post(handler).layer(layer.clone()))
}

/// Asserts that the answer says when to come again.
fn assert_retryable(answer: &Answer, problem: &str) {
    assert_eq!(answer.problem(), problem);
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers["retry-after"], "1");
}

/// Sends it until it is done. The stage lets it pass.
async fn retry(client: &Client, stage: &Stage) -> Answer {
    let retries = async {
        loop {
            stage.go_on();
            let answer = client.post("/", "k", &json!({})).await;
            if answer.status == StatusCode::CREATED {
                break answer;
            }
            assert_eq!(answer.json()["retryable"], true, "{answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), retries)
        .await
        .expect("the key is not stuck")
}

/// R50: a lock that is held for less than the busy time-out is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_lock_is_waited_for() {
    let world = World::<Sqlite>::new().await;
    let mut other = Other::start(&world).await;
    let server = Server::start(effects_app(&world.layer())).await;
    let client = Client::new(&server);
    other.order("write").await;
    let sent =
        tokio::spawn(async move { client.post("/effects", "k", &json!({"note": "x"})).await });
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!sent.is_finished(), "it waits");
    other.order("release").await;
    let answer = sent.await.unwrap();
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "not for the whole time-out"
    );
    assert_eq!(world.effects("x").await, 1);
    world.end().await;
}

/// Lets another process take a lock before the claim. The handler does not run, and what is
/// completed is replayed all the same.
async fn shut_out(journal: SqliteJournalMode, lock: &str) {
    let world = impatient(journal).await;
    let server = Server::start(effects_app(&world.layer())).await;
    let client = Client::new(&server);
    let act = json!({"note": "x"});
    let done = client.post("/effects", "done", &act).await;
    assert_eq!(done.status, StatusCode::CREATED);

    let mut other = Other::start(&world).await;
    other.order(lock).await;
    let answer = client.post("/effects", "k", &act).await;
    assert_retryable(&answer, "store-unavailable");
    // Without a WAL a writer that waits for a reader keeps other readers out for a while.
    while !client.post("/effects", "done", &act).await.is_replay() {
        assert_eq!(journal, SqliteJournalMode::Delete);
    }
    other.order("release").await;
    assert_eq!(world.records("k", "claimed").await, 0);
    assert_eq!(world.effects("x").await, 1, "the handler did not run");
    let answer = client.post("/effects", "k", &act).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    assert_eq!(world.effects("x").await, 2);
    close(world).await;
}

/// Ends the test, which looks in another journal mode.
async fn close(world: World<Sqlite>) {
    world.pool.close().await;
    world.end().await;
}

/// R57: a claim that meets a longer lock is answered 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_gives_way_to_a_long_lock() {
    shut_out(SqliteJournalMode::Wal, "write").await;
}

/// R57: likewise one that meets a reader, without a WAL. It can be inserted then, and not be
/// committed: it does not look as if it had been made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_gives_way_to_a_long_reader() {
    shut_out(SqliteJournalMode::Delete, "read").await;
}

/// Lets another process take a lock when the handler is at a place, and keep it until the answer is
/// out. Then the key can be used again, for one effect.
async fn locked_out(journal: SqliteJournalMode, place: &'static str, lock: &str, problem: &str) {
    let world = impatient(journal).await;
    // What could not be freed is taken over soon.
    let layer = world.layer().stale_after(Duration::from_secs(1));
    let stage = Stage::new();
    let server = Server::start(staged(&layer, &stage, place)).await;
    let client = Client::new(&server);
    let mut other = Other::start(&world).await;
    let sent = tokio::spawn({
        let client = client.clone();
        async move { client.post("/", "k", &json!({})).await }
    });
    stage.reached().await;
    other.order(lock).await;
    stage.go_on();
    assert_retryable(&sent.await.unwrap(), problem);
    other.order("release").await;
    assert_eq!(world.effects("x").await, 0);
    assert_eq!(world.records("k", "completed").await, 0);

    assert!(!retry(&client, &stage).await.is_replay());
    assert!(retry(&client, &stage).await.is_replay());
    assert_eq!(world.effects("x").await, i64::from(place != "without"));
    assert_eq!(world.records("k", "completed").await, 1);
    close(world).await;
}

/// R57: a handler that cannot begin its transaction for a long lock answers 503 by `?`, and its key
/// can be used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_gives_way_to_a_long_lock() {
    locked_out(
        SqliteJournalMode::Wal,
        "before",
        "write",
        "store-unavailable",
    )
    .await;
}

/// R61: a completion without a transaction that meets a long lock has certainly not happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_gives_way_to_a_long_lock() {
    locked_out(SqliteJournalMode::Wal, "without", "write", "conflict-retry").await;
}

/// R61: without a WAL a reader keeps COMMIT out. It has certainly not happened then, and is rolled
/// back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_gives_way_to_a_long_reader() {
    locked_out(SqliteJournalMode::Delete, "after", "read", "conflict-retry").await;
}

/// R50: what a handler has read is still so when it writes. Nobody writes in between, so that its own
/// write is never refused for a snapshot that has grown old, which no time-out would wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_reads_first_has_the_lock_already() {
    let world = World::<Sqlite>::new().await;
    let stage = Stage::new();
    let server = Server::start(staged(&world.layer(), &stage, "read")).await;
    let client = Client::new(&server);
    let sent = tokio::spawn(async move { client.post("/", "k", &json!({})).await });
    stage.reached().await;

    let other = Sqlite::connect(&world.database, 1).await;
    let mut conn = other.acquire().await.unwrap();
    let writing = Sqlite::insert(&mut conn, "other");
    let written = timeout(Duration::from_millis(200), writing).await;
    assert!(written.is_err(), "somebody wrote in between: {written:?}");

    stage.go_on();
    assert_eq!(sent.await.unwrap().status, StatusCode::CREATED);
    assert_eq!(world.effects("x").await, 1);
    drop(conn);
    other.close().await;
    world.end().await;
}
