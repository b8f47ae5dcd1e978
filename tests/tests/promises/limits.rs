//! Permits, draining, and stores that do not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Answer, Client, Server, TestDb, World, effects_app, on_every_database};
use http::Method;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tower_idempotency::{IdempotencyLayer, SqlxStore, Tx};

/// How many handlers are inside, how many were at most, and what lets them go.
struct Meter {
    inside: AtomicUsize,
    most: AtomicUsize,
    begun: Notify,
    go_on: Semaphore,
}

impl Default for Meter {
    fn default() -> Self {
        let count = AtomicUsize::default;
        Self {
            inside: count(),
            most: count(),
            begun: Notify::new(),
            go_on: Semaphore::new(0),
        }
    }
}

fn metered<D: TestDb>(layer: &IdempotencyLayer<SqlxStore<D>>, meter: &Arc<Meter>) -> Router {
    struct Inside(Arc<Meter>);
    impl Drop for Inside {
        fn drop(&mut self) {
            self.0.inside.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let meter = Arc::clone(meter);
    let handler = move |tx: Tx<D>| {
        let meter = Arc::clone(&meter);
        async move {
            let inside = meter.inside.fetch_add(1, Ordering::SeqCst) + 1;
            let _inside = Inside(Arc::clone(&meter));
            meter.most.fetch_max(inside, Ordering::SeqCst);
            meter.begun.notify_one();
            meter.go_on.acquire().await.expect("never closed").forget();
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            D::insert(&mut conn, "x").await.expect("an insert");
            Ok::<_, Response>(StatusCode::CREATED)
        }
    };
    Router::new().route("/", post(handler).layer(layer.clone()))
}

on_every_database! {
    /// R58: no more handlers run than there are permits, also where clients hang up: a thousand
    /// cancelled requests never have more than eight.
    async fn permits_hold_though_clients_hang_up<D>() {
        let world = World::<D>::new().await;
        let meter = Arc::new(Meter::default());
        let layer = world.layer().max_in_flight(8);
        let server = Server::start(metered(&layer, &meter)).await;
        let client = Client::http2(&server);
        for key in 0..1_000 {
            let request = client.request(Method::POST, "/").header("idempotency-key", key);
            let request = tokio::spawn(Answer::try_of(request));
            if meter.inside.load(Ordering::SeqCst) < 8 {
                meter.begun.notified().await;
            } else if key % 10 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            request.abort();
        }
        assert_eq!(meter.most.load(Ordering::SeqCst), 8);
        let busy = client.post("/", "one-more", &json!({})).await;
        assert_eq!((busy.status, busy.problem()), (StatusCode::SERVICE_UNAVAILABLE, "busy".into()));
        assert_eq!(busy.headers["retry-after"], "1");
        assert_eq!(world.records("one-more", "claimed").await, 0);

        meter.go_on.add_permits(Semaphore::MAX_PERMITS >> 1);
        while world.effects("x").await < 8 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let free = client.post("/", "one-more", &json!({})).await;
        assert_eq!(free.status, StatusCode::CREATED, "the permits are back");
        assert_eq!(world.effects("x").await, 9);
        world.end().await;
    }

    /// R59: draining refuses what is new, waits for what runs, and then drops it, rolled back and
    /// freed.
    async fn draining_waits_and_then_drops<D>() {
        let world = World::<D>::new().await;
        let meter = Arc::new(Meter::default());
        let layer = world.layer();
        let server = Server::start(metered(&layer, &meter)).await;
        let client = Client::new(&server);
        let mut running = JoinSet::new();
        for key in ["a", "b"] {
            let client = client.clone();
            running.spawn(async move { client.post("/", key, &json!({})).await });
            meter.begun.notified().await;
        }
        let drain = tokio::spawn({
            let layer = layer.clone();
            async move { layer.drain(Duration::from_millis(500)).await }
        });
        let refused = loop {
            let answer = client.post("/", "c", &json!({})).await;
            if answer.status == StatusCode::SERVICE_UNAVAILABLE {
                break answer;
            }
        };
        assert_eq!(refused.problem(), "busy");
        meter.go_on.add_permits(1);
        assert_eq!(drain.await.unwrap(), 0, "nothing is left");
        let mut answers: Vec<u16> =
            running.join_all().await.iter().map(|answer| answer.status.as_u16()).collect();
        answers.sort_unstable();
        assert_eq!(answers, [201, 503], "one ended in time, one was dropped");
        let done = i64::try_from(answers.iter().filter(|status| **status == 201).count()).unwrap();
        assert_eq!(world.effects("x").await, done);
        let completed = world.records("a", "completed").await + world.records("b", "completed").await;
        let claimed = world.records("a", "claimed").await + world.records("b", "claimed").await;
        assert_eq!((completed, claimed), (done, 0));
        world.end().await;
    }

    /// R57: where the pool has no connection in time, or is closed, the handler does not run.
    async fn no_store_no_handler<D>() {
        let world = World::<D>::with_connections(1).await;
        let layer = world.layer().store_timeout(Duration::from_millis(200));
        let server = Server::start(effects_app(&layer)).await;
        let client = Client::new(&server);
        let act = json!({"note": "x"});
        let taken = world.pool.acquire().await.unwrap();
        let answer = client.post("/effects", "k", &act).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.problem(), "store-unavailable");
        assert_eq!(answer.headers["retry-after"], "1");
        drop(taken);
        while client.post("/effects", "k", &act).await.status != StatusCode::CREATED {}
        assert_eq!(world.effects("x").await, 1);

        world.pool.close().await;
        let answer = client.post("/effects", "k2", &act).await;
        assert_eq!((answer.status, answer.problem()), (StatusCode::SERVICE_UNAVAILABLE, "store-unavailable".into()));
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }

    /// R34: a living handler's claim is kept fresh until its transaction begins, and past the
    /// ceiling the handler is dropped, rolled back and freed.
    async fn renewal_keeps_the_living_and_ends_the_endless<D>() {
        let world = World::<D>::new().await;
        let layer = world.layer().stale_after(Duration::from_secs(1));
        let layer = layer.renew_claims(Duration::from_millis(3_500));
        let server = Server::start(effects_app(&layer)).await;
        let client = Client::new(&server);
        for (wait_ms, status) in [(2_000_u64, 201_u16), (60_000, 504)] {
            let act = json!({"note": "x", "wait_ms": wait_ms});
            let first = tokio::spawn({
                let (client, act) = (client.clone(), act.clone());
                async move { client.post("/effects", &wait_ms.to_string(), &act).await }
            });
            // Well past `stale_after`: without renewal it would be taken over.
            tokio::time::sleep(Duration::from_millis(1_600)).await;
            let second = client.post("/effects", &wait_ms.to_string(), &act).await;
            assert_eq!(second.problem(), "in-progress");
            let first = first.await.unwrap();
            assert_eq!(first.status.as_u16(), status, "{first:?}");
            if status == 504 {
                assert_eq!(first.problem(), "handler-timeout");
                assert_eq!(world.records("60000", "claimed").await, 0, "freed");
            }
        }
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }
}

/// R33, R34, R65: whatever duration is set, nothing overflows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_duration_is_too_long() {
    let world = World::<sqlx::Sqlite>::new().await;
    let longest = Duration::MAX;
    let layer = world
        .layer()
        .stale_after(longest)
        .renew_claims(longest)
        .ttl(longest);
    let layer = layer
        .capture_within(longest)
        .store_timeout(longest)
        .wait_for_in_progress(longest);
    let server = Server::start(effects_app(&layer)).await;
    let client = Client::new(&server);
    for replay in [false, true] {
        let answer = client.post("/effects", "k", &json!({"note": "x"})).await;
        assert_eq!(
            (answer.status, answer.is_replay()),
            (StatusCode::CREATED, replay)
        );
    }
    assert_eq!(layer.drain(longest).await, 0);
    world.end().await;
}
