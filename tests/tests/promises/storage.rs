//! What records cost, and what may be done to their table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Client, Server, Stage, TestDb, World, effects_app, on_every_database};
use serde_json::json;
use sqlx::Postgres;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use test_support::{Binaries, PostgresNode, ServerSettings};
use tokio::task::JoinSet;
use tower_idempotency::{IdempotencyLayer, Tx, migrate};

on_every_database! {
    /// R51: a column that somebody adds to the table breaks no statement, prepared before or later.
    async fn an_added_column_breaks_nothing<D>() {
        let world = World::<D>::with_connections(1).await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);
        let act = json!({"note": "x"});
        for key in ["a", "a", "b"] {
            assert_eq!(client.post("/effects", key, &act).await.status, StatusCode::CREATED);
        }
        let mut conn = world.pool.acquire().await.unwrap();
        D::run(&mut conn, "ALTER TABLE {records} ADD COLUMN tenant text").await.unwrap();
        drop(conn);
        assert!(client.post("/effects", "a", &act).await.is_replay());
        assert_eq!(client.post("/effects", "c", &act).await.status, StatusCode::CREATED);
        assert!(client.post("/effects", "c", &act).await.is_replay());
        assert_eq!(world.effects("x").await, 3);
        world.end().await;
    }
}

/// R51, R52: replays and conflicts write nothing, not even to PostgreSQL's log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_write_nothing() {
    // A server of its own: others would write to its log.
    let binaries = Binaries::find().expect("the binaries of PostgreSQL");
    let settings = ServerSettings::default().set("autovacuum", "off");
    let node = PostgresNode::primary(&binaries, &settings).await.unwrap();
    let pool = PgPoolOptions::new().connect(&node.url()).await.unwrap();
    migrate(&pool).await.unwrap();
    let table = sqlx::raw_sql("CREATE TABLE effect (note text NOT NULL)");
    table.execute(&pool).await.unwrap();
    let server = Server::start(effects_app(&IdempotencyLayer::new(pool.clone()))).await;
    let client = Client::new(&server);
    let first = client.post("/effects", "k", &json!({"note": "x"})).await;
    assert_eq!(first.status, StatusCode::CREATED);

    let position = async || {
        let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint WHERE $1 = ''";
        Postgres::count(&pool, sql, "").await
    };
    let mut written = Vec::new();
    // The server writes something of its own now and then.
    for _ in 0..5 {
        let before = position().await;
        for _ in 0..20 {
            assert!(
                client
                    .post("/effects", "k", &json!({"note": "x"}))
                    .await
                    .is_replay()
            );
            let other = client.post("/effects", "k", &json!({"note": "y"})).await;
            assert_eq!(other.problem(), "key-reused");
        }
        written.push(position().await - before);
    }
    assert!(written.contains(&0), "{written:?} bytes");
    pool.close().await;
    node.stop().await;
}

/// R31: the index of the primary key may be rebuilt while requests arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_on_while_the_key_is_rebuilt() {
    let world = World::<Postgres>::new().await;
    let server = Server::start(effects_app(&world.layer())).await;
    let rebuilding = Arc::new(AtomicBool::new(true));
    let mut clients = JoinSet::new();
    for number in 0..4 {
        let (client, rebuilding) = (Client::new(&server), Arc::clone(&rebuilding));
        clients.spawn(async move {
            let mut sent: i64 = 0;
            while rebuilding.load(Ordering::SeqCst) {
                let key = format!("{number}-{sent}");
                let first = client.post("/effects", &key, &json!({"note": "x"})).await;
                assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
                assert!(
                    client
                        .post("/effects", &key, &json!({"note": "x"}))
                        .await
                        .is_replay()
                );
                sent += 1;
            }
            sent
        });
    }
    for _ in 0..5 {
        let mut conn = world.pool.acquire().await.unwrap();
        let rebuild = "REINDEX TABLE CONCURRENTLY tower_idempotency.record";
        Postgres::run(&mut conn, rebuild).await.unwrap();
    }
    rebuilding.store(false, Ordering::SeqCst);
    let sent: i64 = clients.join_all().await.iter().sum();
    assert!(sent > 0);
    assert_eq!(world.effects("x").await, sent);
    world.end().await;
}

/// R50: on PostgreSQL a completion without resource or ttl touches no index, so that it updates its
/// row within the page where there is space; a record with a key of 36 bytes takes less than a kilobyte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_are_hot_and_records_small() {
    const RECORDS: i64 = 400;
    let world = World::<Postgres>::new().await;
    let server = Server::start(effects_app(&world.layer())).await;
    let client = Client::new(&server);
    for number in 0..RECORDS {
        let key = format!("{number:036}");
        let answer = client
            .post("/effects", &key, &json!({"note": "x".repeat(60)}))
            .await;
        assert_eq!(answer.status, StatusCode::CREATED);
    }
    let updates = async |column: &'static str| Postgres::count(&world.pool, column, "record").await;
    let all = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = $1";
    // Each connection reports what it did after a while.
    while updates(all).await < RECORDS {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let hot = "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = $1";
    let hot = updates(hot).await;
    // The others' pages were full: how many, is a matter of how soon PostgreSQL tidies them up. An index
    // on a column that changes would leave none.
    assert!(hot >= RECORDS / 10, "{hot} of {RECORDS} are hot");

    let mut conn = world.pool.acquire().await.unwrap();
    Postgres::run(&mut conn, "VACUUM tower_idempotency.record")
        .await
        .unwrap();
    drop(conn);
    let size = "SELECT pg_total_relation_size('tower_idempotency.record') WHERE $1 = ''";
    let size = Postgres::count(&world.pool, size, "").await / RECORDS;
    println!("{hot} of {RECORDS} updates are hot, {size} bytes a record");
    assert!(size < 1_024, "{size} bytes a record");
    world.end().await;
}

/// R33: two servers whose sessions have other time zones agree on when a claim is stale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_zones_do_not_matter() {
    let world = World::<Postgres>::new().await;
    let stage = Stage::new();
    let mut clients = Vec::new();
    for zone in ["Pacific/Kiritimati", "Pacific/Niue"] {
        let options: PgConnectOptions = world.database.url().parse().unwrap();
        let options = options.options([("timezone", zone)]);
        let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
        let stage = Arc::clone(&stage);
        let handler = move |tx: Tx<Postgres>| {
            let stage = Arc::clone(&stage);
            async move {
                stage.pause().await;
                let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
                Postgres::insert(&mut conn, "x").await.expect("an insert");
                Ok::<_, Response>(StatusCode::CREATED)
            }
        };
        let layer = IdempotencyLayer::new(pool);
        let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
        clients.push((Client::new(&server), server));
    }
    for (round, (one, other)) in [(0, 1), (1, 0)].into_iter().enumerate() {
        let key = round.to_string();
        let sent = tokio::spawn({
            let (client, key) = (clients[one].0.clone(), key.clone());
            async move { client.post("/", &key, &json!({})).await }
        });
        stage.reached().await;
        let alive = clients[other].0.post("/", &key, &json!({})).await;
        assert_eq!(alive.problem(), "in-progress");
        // `stale_after` is five minutes.
        world.age(Duration::from_secs(310)).await;
        let heir = tokio::spawn({
            let (client, key) = (clients[other].0.clone(), key.clone());
            async move { client.post("/", &key, &json!({})).await }
        });
        stage.reached().await;
        stage.go_on();
        stage.go_on();
        // The late one is answered with what the record says: the result, or that it is on its way.
        let answers = [heir.await.unwrap(), sent.await.unwrap()];
        assert_eq!(answers[0].status, StatusCode::CREATED);
        assert!(!answers[0].is_replay());
        assert!(answers[1].is_replay() || answers[1].problem() == "in-progress");
    }
    assert_eq!(world.effects("x").await, 2);
    world.end().await;
}
