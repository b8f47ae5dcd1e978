//! A server that follows another, and may be promoted.

use end_to_end::{Client, Server, effects_app};
use http::StatusCode;
use serde_json::json;
use sqlx::Postgres;
use sqlx::postgres::PgPoolOptions;
use test_support::{Binaries, PostgresNode, ServerSettings};
use tower_idempotency::{IdempotencyLayer, Severity, SqlxStore, migrate};

/// R57: on a read-only standby no handler runs, for a new key or a known one; the answer says that
/// the store is unavailable, and the check why. Once the standby is promoted, all is as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_claims_nothing() {
    let binaries = Binaries::find().expect("the binaries of PostgreSQL");
    let settings = ServerSettings::default();
    let mut node = PostgresNode::primary(&binaries, &settings)
        .await
        .expect("a server");
    let pool = PgPoolOptions::new().connect_lazy(&node.url()).unwrap();
    migrate(&pool).await.unwrap();
    let table = sqlx::raw_sql("CREATE TABLE effect (note text NOT NULL)");
    table.execute(&pool).await.unwrap();
    let layer = IdempotencyLayer::new(pool.clone());
    let server = Server::start(effects_app::<Postgres>(&layer)).await;
    let client = Client::new(&server);
    let post = async |key: &str| client.post("/effects", key, &json!({"note": key})).await;
    assert_eq!(post("known").await.status, StatusCode::CREATED);

    node.crash().await.unwrap();
    node.be_read_only().await.expect("a standby");
    for key in ["known", "new"] {
        let answer = post(key).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.problem(), "store-unavailable");
        assert!(answer.headers.contains_key("retry-after"));
    }
    let findings = SqlxStore::new(pool.clone()).check().await.unwrap();
    let read_only = findings.iter().find(|f| f.what.contains("read-only"));
    assert_eq!(read_only.map(|f| f.severity), Some(Severity::Error));

    let promote = sqlx::raw_sql("SELECT pg_promote()");
    promote.execute(&pool).await.unwrap();
    assert!(post("known").await.is_replay());
    assert_eq!(post("new").await.status, StatusCode::CREATED);
    let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM effect")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(effects, 2);
    pool.close().await;
    node.stop().await;
}
