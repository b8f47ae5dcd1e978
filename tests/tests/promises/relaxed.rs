//! Claims whose commit does not wait for the disk, on a server that crashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use end_to_end::{Client, Server, TestDb as _};
use http::StatusCode;
use serde_json::json;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres};
use test_support::{Binaries, PostgresNode, ServerSettings};
use tokio::sync::Notify;
use tower_idempotency::{IdempotencyLayer, SqlxStore, Tx, migrate};

/// A handler that can be held before it writes.
#[derive(Default)]
struct Held {
    entered: AtomicUsize,
    changed: Notify,
    go_on: Notify,
}

impl Held {
    /// Waits until so many requests have reached the handler.
    async fn entered(&self, count: usize) {
        while self.entered.load(Ordering::SeqCst) < count {
            self.changed.notified().await;
        }
    }
}

/// The first to come waits until it is told to go on.
fn app(layer: IdempotencyLayer<SqlxStore<Postgres>>, held: Arc<Held>) -> Router {
    let handler = move |tx: Tx<Postgres>| {
        let held = Arc::clone(&held);
        async move {
            let first = held.entered.fetch_add(1, Ordering::SeqCst) == 0;
            held.changed.notify_one();
            if first {
                held.go_on.notified().await;
            }
            let mut conn = tx.acquire().await.map_err(|error| error.into_response())?;
            Postgres::insert(&mut conn, "x")
                .await
                .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
            Ok::<_, Response>((StatusCode::CREATED, if first { "first" } else { "second" }))
        }
    };
    Router::new().route("/", post(handler).layer(layer))
}

/// Crashes the server while a handler runs whose claim may not be on the disk yet. Returns what a
/// retry is then answered, and at last the first client.
async fn crash(relaxed: bool) -> [(StatusCode, bytes::Bytes); 2] {
    let binaries = Binaries::find().expect("the binaries of PostgreSQL");
    // What no commit waits for stays in memory for ten seconds.
    let settings = ServerSettings::default()
        .durable()
        .set("wal_writer_delay", "10s");
    let mut node = PostgresNode::primary(&binaries, &settings)
        .await
        .expect("a server");
    let pool: PgPool = PgPoolOptions::new().connect_lazy(&node.url()).unwrap();
    migrate(&pool).await.unwrap();
    let table = sqlx::raw_sql("CREATE TABLE effect (note text NOT NULL)");
    table.execute(&pool).await.unwrap();
    let store = SqlxStore::new(pool.clone());
    let store = if relaxed {
        store.relaxed_claims()
    } else {
        store
    };
    let held = Arc::new(Held::default());
    let server = Server::start(app(IdempotencyLayer::with_store(store), Arc::clone(&held))).await;
    let client = Client::new(&server);
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.post("/", "k", &json!({})).await }
    });
    held.entered(1).await;
    node.crash().await.unwrap();
    node.restart().await.expect("it recovers");

    let retry = client.post("/", "k", &json!({})).await;
    held.go_on.notify_one();
    let first = first.await.unwrap();
    let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM effect")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(effects, 1, "{retry:?} {first:?}");
    pool.close().await;
    node.stop().await;
    [retry, first].map(|answer| (answer.status, answer.body))
}

/// R60: a relaxed claim that a crash has lost lets a retry run; the first handler, still running,
/// commits nothing any more, and its client gets the one result there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_claim_commits_nothing() {
    let [retry, first] = crash(true).await;
    assert_eq!(retry, (StatusCode::CREATED, "second".into()));
    assert_eq!(first, (StatusCode::CREATED, "second".into()));
}

/// Without relaxed claims the crash loses nothing: the retry is told that the first one runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_survives_a_crash() {
    let [retry, first] = crash(false).await;
    assert_eq!(retry.0, StatusCode::CONFLICT);
    assert_eq!(first, (StatusCode::CREATED, "first".into()));
}
