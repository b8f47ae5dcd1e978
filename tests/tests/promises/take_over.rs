//! A claim whose owner is dead is taken over; an owner who was only slow changes nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use end_to_end::{Client, Server, TestDb, World, on_every_database};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tower_idempotency::Tx;

/// A handler whose first run waits to be told to go on.
fn app<D: TestDb>(world: &World<D>, go_on: &Arc<Notify>, begin_first: bool) -> Router {
    let (first, go_on) = (Arc::new(Semaphore::new(1)), Arc::clone(go_on));
    let handler = move |tx: Tx<D>| {
        let (first, go_on) = (Arc::clone(&first), Arc::clone(&go_on));
        async move {
            let slow = first.try_acquire().map(tokio::sync::SemaphorePermit::forget).is_ok();
            let conn = if begin_first { tx.acquire().await.ok() } else { None };
            if slow {
                go_on.notified().await;
            }
            let mut conn = match conn {
                Some(conn) => conn,
                None => tx.acquire().await.map_err(IntoResponse::into_response)?,
            };
            let note = if slow { "slow" } else { "quick" };
            D::insert(&mut conn, note).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
            Ok::<_, axum::response::Response>((StatusCode::CREATED, note))
        }
    };
    let layer = world.layer().stale_after(Duration::from_secs(1));
    Router::new().route("/", post(handler).layer(layer))
}

on_every_database! {
    /// R33, R60: a stale claim is taken over, and its owner's late completion changes nothing: its
    /// writes are rolled back, and it answers with the other's result.
    async fn a_slow_owner_changes_nothing<D>() {
        let world = World::<D>::new().await;
        let go_on = Arc::new(Notify::new());
        let server = Server::start(app(&world, &go_on, false)).await;
        let client = Client::new(&server);

        let slow = tokio::spawn({
            let client = client.clone();
            async move { client.post("/", "k", &json!({})).await }
        });
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

        go_on.notify_one();
        let slow = slow.await.unwrap();
        assert_eq!((slow.status, &slow.body[..]), (StatusCode::CREATED, &b"quick"[..]));
        assert!(slow.is_replay());
        assert_eq!((world.effects("slow").await, world.effects("quick").await), (0, 1));
        world.end().await;
    }
}

/// R33, R60: likewise where the slow owner's transaction was open all the while. On SQLite it would
/// hold the one write lock, and nobody could take over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_owner_with_an_open_transaction_changes_nothing() {
    let world = World::<sqlx::Postgres>::new().await;
    let go_on = Arc::new(Notify::new());
    let server = Server::start(app(&world, &go_on, true)).await;
    let client = Client::new(&server);
    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.post("/", "k", &json!({})).await }
    });
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let quick = client.post("/", "k", &json!({})).await;
    assert_eq!((quick.status, &quick.body[..]), (StatusCode::CREATED, &b"quick"[..]));
    go_on.notify_one();
    let slow = slow.await.unwrap();
    assert!(slow.is_replay());
    assert_eq!((world.effects("slow").await, world.effects("quick").await), (0, 1));
    world.end().await;
}
