//! Commits whose outcome the connection did not live to tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Client, Server, ServerDb, World, on_every_server};
use serde_json::json;
use sqlx::pool::PoolOptions;
use test_support::{Direction, Proxy, Traffic};
use tower_idempotency::{IdempotencyLayer, Tx};

/// What happens to the connection once the handler has written.
type Fault = fn(&Proxy);

async fn world_behind<D: ServerDb>(fault: Fault) -> (World<D>, Server, Arc<Proxy>) {
    let world = World::<D>::new().await;
    let proxy = Arc::new(Proxy::start(D::address(&world.database)).await);
    let options = PoolOptions::<D>::new()
        .max_connections(4)
        .acquire_timeout(Duration::from_secs(2));
    let pool = D::connect_via(&world.database, &proxy, options).await;
    let (seen, faulted) = (Arc::clone(&proxy), Arc::new(AtomicBool::new(false)));
    let handler = move |tx: Tx<D>| {
        let (seen, faulted) = (Arc::clone(&seen), Arc::clone(&faulted));
        async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            D::insert(&mut conn, "x").await.expect("an insert");
            if !faulted.swap(true, Ordering::SeqCst) {
                fault(&seen);
            }
            Ok::<_, Response>(StatusCode::CREATED)
        }
    };
    let layer = IdempotencyLayer::new(pool).store_timeout(Duration::from_millis(500));
    // What could not be freed while the connection was down is taken over soon.
    let layer = layer.stale_after(Duration::from_secs(1));
    let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
    (world, server, proxy)
}

on_every_server! {
    /// R62: whatever part of completion and COMMIT the connection was cut in, the answer is the truth: 2xx
    /// only where the effect is there, else a retry is asked for, and it ends with exactly one.
    async fn a_cut_connection_is_resolved_by_proof<D>() {
        let faults: [(&str, Fault); 6] = [
            ("reset at completion", Proxy::reset_all),
            ("cut in the completion's request", |proxy| {
                proxy.cut_after(Direction::ToServer, 10)
            }),
            ("cut before the completion's answer", |proxy| {
                proxy.cut_after(Direction::ToClient, 0)
            }),
            // On PostgreSQL the completion's answer has some hundred bytes, COMMIT's about 20.
            ("cut in COMMIT's answer", |proxy| {
                proxy.cut_after(Direction::ToClient, 120)
            }),
            ("cut later", |proxy| {
                proxy.cut_after(Direction::ToClient, 180)
            }),
            ("held for ever", |proxy| {
                proxy.set(Direction::ToClient, Traffic::Hold)
            }),
        ];
        for (name, fault) in faults {
            let (world, server, proxy) = world_behind::<D>(fault).await;
            let client = Client::new(&server);
            let heal = tokio::spawn({
                let proxy = Arc::clone(&proxy);
                async move {
                    tokio::time::sleep(Duration::from_millis(800)).await;
                    proxy.set_both(Traffic::Pass);
                }
            });
            let answer = client.post("/", "k", &json!({})).await;
            let effects = world.effects("x").await;
            match answer.status {
                StatusCode::CREATED => assert_eq!(effects, 1, "{name}"),
                StatusCode::SERVICE_UNAVAILABLE => {
                    assert_eq!(answer.json()["retryable"], true, "{name}");
                }
                status => panic!("{name}: {status}"),
            }
            heal.await.unwrap();
            let retries = async {
                while client.post("/", "k", &json!({})).await.status != StatusCode::CREATED {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let retried = tokio::time::timeout(Duration::from_secs(30), retries).await;
            assert!(retried.is_ok(), "{name}: the key is stuck");
            assert_eq!(world.effects("x").await, 1, "{name}: after the retries");
            assert_eq!(world.records("k", "completed").await, 1, "{name}");
            println!("{name}: {} with {effects} effects", answer.status);
            D::assert_none_idle(&world.database).await;
        }
    }

    /// R62: what was committed though COMMIT's answer was lost is answered 2xx, by the proof that the
    /// completed record bears this claim's own token.
    async fn every_byte_of_the_answer_may_be_lost<D>() {
        // Counted from the handler's end: through the completion's answer and COMMIT's.
        let (mut told, mut untold) = (0, 0);
        // MySQL's answer to a statement that is prepared tells of each parameter.
        let (longest, step) = if D::NAME == "MySQL" { (1_050, 35) } else { (200, 7) };
        for bytes in (0..longest).step_by(step) {
            static CUT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
            CUT.store(bytes, Ordering::SeqCst);
            let (world, server, _proxy) = world_behind::<D>(|proxy| {
                let bytes = CUT.load(Ordering::SeqCst);
                proxy.cut_after(Direction::ToClient, bytes);
            })
            .await;
            let answer = Client::new(&server).post("/", "k", &json!({})).await;
            let committed = world.records("k", "completed").await;
            assert_eq!(world.effects("x").await, committed, "{bytes}");
            if answer.status == StatusCode::CREATED {
                assert_eq!(committed, 1, "{bytes}");
                told += 1;
            } else {
                assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{bytes}");
                assert_eq!(
                    (committed, world.records("k", "claimed").await),
                    (0, 0),
                    "{bytes}"
                );
                untold += 1;
            }
        }
        assert!(
            told > 0 && untold > 0,
            "cuts on both sides of the commit: {told} and {untold}"
        );
    }
}
