//! A claim whose owner is dead is taken over; an owner who was only slow changes nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use end_to_end::{Client, Server, TestDb, World, on_every_database, on_every_server};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use tower_idempotency::Tx;

/// Where a handler's first run stands still.
#[derive(Default)]
struct Gate {
    passed: AtomicBool,
    reached: Notify,
    go_on: Notify,
}

/// A handler whose first run waits to be told to go on.
fn app<D: TestDb>(
    world: &World<D>,
    gate: &Arc<Gate>,
    begin_first: bool,
    slow_answer: StatusCode,
) -> Router {
    let gate = Arc::clone(gate);
    let handler = move |tx: Tx<D>| {
        let gate = Arc::clone(&gate);
        async move {
            let slow = !gate.passed.swap(true, Ordering::SeqCst);
            let conn = if begin_first {
                tx.acquire().await.ok()
            } else {
                None
            };
            if slow {
                gate.reached.notify_one();
                gate.go_on.notified().await;
            }
            let mut conn = match conn {
                Some(conn) => conn,
                None => tx.acquire().await.map_err(IntoResponse::into_response)?,
            };
            let note = if slow { "slow" } else { "quick" };
            D::insert(&mut conn, note)
                .await
                .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
            let status = if slow {
                slow_answer
            } else {
                StatusCode::CREATED
            };
            Ok::<_, axum::response::Response>((status, note))
        }
    };
    let layer = world.layer().stale_after(Duration::from_secs(1));
    Router::new().route("/", post(handler).layer(layer))
}

on_every_database! {
    /// R33, R60: a stale claim is taken over, and its owner's late end changes nothing, be it a success
    /// or a failure: its writes are rolled back, and it answers with the other's result.
    async fn a_slow_owner_changes_nothing<D>() {
        for slow_answer in [StatusCode::CREATED, StatusCode::NOT_FOUND] {
            slow_owner::<D>(slow_answer).await;
        }
    }
}

async fn slow_owner<D: TestDb>(slow_answer: StatusCode) {
    let world = World::<D>::new().await;
    let gate = Arc::new(Gate::default());
    let server = Server::start(app(&world, &gate, false, slow_answer)).await;
    let client = Client::new(&server);

    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.post("/", "k", &json!({})).await }
    });
    gate.reached.notified().await;
    // Told to wait while the claim lives, then it is taken over.
    let quick = loop {
        let answer = client.post("/", "k", &json!({})).await;
        if answer.status == StatusCode::CREATED {
            break answer;
        }
        assert_eq!(answer.problem(), "in-progress");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(quick.body, "quick");
    assert!(!quick.is_replay());

    gate.go_on.notify_one();
    let slow = slow.await.unwrap();
    assert_eq!(
        (slow.status, &slow.body[..]),
        (StatusCode::CREATED, &b"quick"[..])
    );
    assert!(slow.is_replay());
    assert_eq!(
        (world.effects("slow").await, world.effects("quick").await),
        (0, 1)
    );
    world.end().await;
}

/// R33, R60: likewise where the slow owner's transaction was open all the while. On SQLite it would
/// hold the one write lock, and nobody could take over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_owner_with_an_open_transaction_changes_nothing() {
    let world = World::<sqlx::Postgres>::new().await;
    let gate = Arc::new(Gate::default());
    let server = Server::start(app(&world, &gate, true, StatusCode::CREATED)).await;
    let client = Client::new(&server);
    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.post("/", "k", &json!({})).await }
    });
    gate.reached.notified().await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let quick = client.post("/", "k", &json!({})).await;
    assert_eq!(
        (quick.status, &quick.body[..]),
        (StatusCode::CREATED, &b"quick"[..])
    );
    gate.go_on.notify_one();
    let slow = slow.await.unwrap();
    assert!(slow.is_replay());
    assert_eq!(
        (world.effects("slow").await, world.effects("quick").await),
        (0, 1)
    );
    world.end().await;
}

on_every_server! {
    /// R60, R64: an owner who has ended its transaction by hand, and was then taken over, answers with
    /// the other's result: that of its own is not to be had any more.
    async fn an_owner_without_claim_or_transaction_answers_with_the_others_result<D>() {
        let world = World::<D>::new().await;
        let gate = Arc::new(Gate::default());
        let handler = {
            let gate = Arc::clone(&gate);
            move |tx: Tx<D>| {
                let gate = Arc::clone(&gate);
                async move {
                    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
                    if gate.passed.swap(true, Ordering::SeqCst) {
                        return Ok::<_, axum::response::Response>((StatusCode::CREATED, "quick"));
                    }
                    D::run(&mut conn, "ROLLBACK").await.unwrap();
                    gate.reached.notify_one();
                    gate.go_on.notified().await;
                    Ok((StatusCode::NOT_FOUND, "slow"))
                }
            }
        };
        let server = Server::start(Router::new().route("/", post(handler).layer(world.layer()))).await;
        let client = Client::new(&server);
        let slow = tokio::spawn({
            let client = client.clone();
            async move { client.post("/", "k", &json!({})).await }
        });
        gate.reached.notified().await;
        D::age(&world.pool, 400_000).await;
        let quick = client.post("/", "k", &json!({})).await;
        assert_eq!(quick.status, StatusCode::CREATED);
        gate.go_on.notify_one();
        let slow = slow.await.unwrap();
        assert!(slow.is_replay(), "{:?}", slow.status);
        assert_eq!((slow.status, &slow.body), (quick.status, &quick.body));
        world.end().await;
    }
}
