//! What a request costs the pool, and the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use end_to_end::{Client, Server, TestDb, World, effects_app, on_every_database};
use serde_json::json;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, Postgres};
use test_support::Proxy;
use tokio::task::JoinSet;
use tower_idempotency::{IdempotencyLayer, Tx};

on_every_database! {
    /// R13: a handler that waits before its first `acquire` holds no connection: a hundred of them
    /// on a pool of two are done in five seconds.
    async fn waiting_handlers_hold_no_connection<D>() {
        let world = World::<D>::with_connections(2).await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);
        let started = Instant::now();
        let mut arrivals = JoinSet::new();
        for key in 0..100 {
            let client = client.clone();
            let act = json!({"note": "x", "wait_ms": 2_000});
            arrivals.spawn(async move { client.post("/effects", &key.to_string(), &act).await });
        }
        for answer in arrivals.join_all().await {
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        }
        assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
        assert_eq!(world.effects("x").await, 100);
        world.end().await;
    }

    /// R13: a pool of one never hangs, whatever a request comes to.
    async fn a_pool_of_one_is_enough<D>() {
        let world = World::<D>::with_connections(1).await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);
        let mut arrivals = JoinSet::new();
        for i in 0..40 {
            let client = client.clone();
            // New, again, with another body, failing, panicking.
            let key = (i % 8).to_string();
            let act = match i % 5 {
                0 | 1 => json!({"note": "x"}),
                2 => json!({"note": "x", "wait_ms": 5}),
                3 => json!({"note": "x", "answer": 500}),
                _ => json!({"note": "x", "panic": true}),
            };
            let request = client.request(http::Method::POST, "/effects");
            let request = request.header("idempotency-key", key).json(&act);
            arrivals.spawn(end_to_end::Answer::try_of(request));
        }
        let all = tokio::time::timeout(Duration::from_secs(20), arrivals.join_all()).await;
        for answer in all.expect("nothing hangs").into_iter().flatten() {
            assert_ne!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
        }
        let after = client.post("/effects", "after", &json!({"note": "after"})).await;
        assert_eq!(after.status, StatusCode::CREATED);
        world.end().await;
    }
}

/// R50, R51: on PostgreSQL a new key costs one round trip before its handler, a replay one in all,
/// and so does a conflict; completion and COMMIT are two more than the handler's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trips_are_few() {
    let world = World::<Postgres>::new().await;
    let proxy = Arc::new(Proxy::start(world.database.address()).await);
    // Without sqlx's ping, which is a round trip too.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false);
    let pool = pool
        .connect(&world.database.url_via(proxy.address()))
        .await
        .unwrap();

    let seen = Arc::clone(&proxy);
    let handler = move |tx: Tx<Postgres>| {
        let seen = Arc::clone(&seen);
        async move {
            let claimed = seen.round_trips();
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            Postgres::insert(&mut conn, "x")
                .await
                .map_err(|_| StatusCode::CONFLICT.into_response())?;
            Ok::<_, axum::response::Response>(claimed.to_string())
        }
    };
    let layer = IdempotencyLayer::new(pool.clone());
    let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
    let client = Client::new(&server);
    // Prepares the statements.
    for key in ["warm", "warm", "warm-2"] {
        client.post("/", key, &json!({})).await;
    }
    let quiet = || async {
        // A connection pings itself when it goes back to the pool, after the answer.
        loop {
            let before = proxy.round_trips();
            tokio::time::sleep(Duration::from_millis(100)).await;
            if proxy.round_trips() == before {
                break before;
            }
        }
    };

    let before = quiet().await;
    let answer = client.post("/", "k", &json!({})).await;
    let claimed: u64 = String::from_utf8(answer.body.to_vec())
        .unwrap()
        .parse()
        .unwrap();
    // The claim's connection may have pinged itself by the time the handler looks.
    assert!(
        (1..=2).contains(&(claimed - before)),
        "claim: {}",
        claimed - before
    );
    // Claim, BEGIN, INSERT, completion, COMMIT, and a ping for each time of two that a connection
    // goes back, one of them together with the end of the empty transaction behind the COMMIT.
    assert_eq!(quiet().await - before, 8, "a new key in all");

    let before = quiet().await;
    assert!(client.post("/", "k", &json!({})).await.is_replay());
    assert_eq!(quiet().await - before, 2, "a replay, and the ping after it");

    let before = quiet().await;
    let conflict = client.post("/", "k", &json!({"other": true})).await;
    assert_eq!(conflict.status, StatusCode::CONFLICT);
    assert_eq!(
        quiet().await - before,
        2,
        "a conflict, and the ping after it"
    );
    pool.close().await;
    world.end().await;
}

/// R53: an arrival does not wait for somebody else's uncommitted work: 200 ms at the most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncommitted_work_is_not_waited_for() {
    let world = World::<Postgres>::new().await;
    let server = Server::start(effects_app(&world.layer())).await;
    let client = Client::new(&server);
    let act = json!({"note": "x"});
    assert_eq!(
        client.post("/effects", "k", &act).await.status,
        StatusCode::CREATED
    );

    let mut other = PgConnection::connect(world.database.url()).await.unwrap();
    let mut half_open = other.begin().await.unwrap();
    for (sql, status) in [
        (
            "UPDATE tower_idempotency.record SET completed_at = now() WHERE key = 'k'",
            201,
        ),
        ("DELETE FROM tower_idempotency.record WHERE key = 'k'", 201),
        (
            "INSERT INTO tower_idempotency.record \
             (owner, operation, key, state, claim_token, claimed_at, stale_at, fingerprint) \
             VALUES ('ann', 'effects', 'new', 'claimed', decode(repeat('00', 16), 'hex'), now(), now(), 'hs1:')",
            503,
        ),
    ] {
        sqlx::query(sql).execute(&mut *half_open).await.unwrap();
        let key = if status == 503 { "new" } else { "k" };
        let started = Instant::now();
        let answer = client.post("/effects", key, &act).await;
        assert_eq!(answer.status.as_u16(), status, "{answer:?}");
        // The lock's time-out, and what a loaded machine adds.
        assert!(
            started.elapsed() < Duration::from_millis(600),
            "took {:?}",
            started.elapsed()
        );
    }
    half_open.rollback().await.unwrap();
    let answer = client.post("/effects", "new", &act).await;
    assert_eq!(answer.status, StatusCode::CREATED, "as if nothing had been");
    world.end().await;
}
