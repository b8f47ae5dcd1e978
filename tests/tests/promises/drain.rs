//! A layer is drained under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use end_to_end::{Answer, Client, Server, TestDb, World, effects_app, on_every_database};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How many clients send, each one request after the other.
const CLIENTS: usize = 24;

/// How many requests a client sends after it was refused for the first time.
const AFTERWARDS: usize = 5;

/// Posts fresh keys until some time after it is refused. Returns what each key was answered.
async fn send(client: Client, number: usize, done: Arc<Done>) -> Vec<(String, Answer)> {
    let mut answers = Vec::new();
    let mut refused = 0;
    for request in 0.. {
        let key = format!("{number}-{request}");
        let act = json!({"note": key, "wait_ms": request % 3 * 20});
        let answer = client.post("/effects", &key, &act).await;
        if answer.status == StatusCode::CREATED {
            done.count.fetch_add(1, Ordering::SeqCst);
            done.some.notify_one();
        } else {
            refused += 1;
        }
        answers.push((key, answer));
        if refused > AFTERWARDS {
            break;
        }
    }
    answers
}

/// How many requests have been answered 201.
#[derive(Default)]
struct Done {
    count: AtomicUsize,
    some: Notify,
}

/// Drains the layer while clients send, and compares what they were told with what is there.
async fn drained<D: TestDb>(patience: Duration) {
    let world = World::<D>::with_connections(4).await;
    let layer = world.layer();
    let server = Server::start(effects_app(&layer)).await;
    let (client, done) = (Client::new(&server), Arc::<Done>::default());
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(send(client.clone(), number, Arc::clone(&done)));
    }
    while done.count.load(Ordering::SeqCst) < 2 * CLIENTS {
        done.some.notified().await;
    }
    assert_eq!(layer.drain(patience).await, 0, "nothing is left");
    let effects = world.all_effects().await;
    let closed = timeout(Duration::from_secs(10), world.pool.close()).await;
    assert!(closed.is_ok(), "no connection is held");

    let (mut made, mut refused) = (0, 0);
    for (key, answer) in clients.join_all().await.into_iter().flatten() {
        if answer.status == StatusCode::CREATED {
            made += 1;
            assert_eq!(world.effects(&key).await, 1, "{key}");
            assert_eq!(world.records(&key, "completed").await, 1, "{key}");
        } else {
            refused += 1;
            assert_eq!(answer.problem(), "busy", "{key}");
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.headers["retry-after"], "1");
            assert_eq!(world.effects(&key).await, 0, "{key}");
            for state in ["claimed", "completed"] {
                assert_eq!(world.records(&key, state).await, 0, "{key}");
            }
        }
    }
    assert!(refused > CLIENTS * AFTERWARDS, "{refused}");
    assert_eq!(made, effects, "nothing is written once it is drained");
    assert_eq!(world.all_effects().await, effects);
    world.end().await;
}

on_every_database! {
    /// R59: while a layer is drained, requests run and arrive. Each is answered: 201 where its effect
    /// is there, or 503 where nothing is. When it is drained nothing is written any more, and the
    /// pool can be closed.
    async fn draining_under_load_waits_for_all<D>() {
        drained::<D>(Duration::from_secs(30)).await;
    }

    /// R59: likewise where there is no time to wait.
    async fn draining_under_load_drops_all<D>() {
        drained::<D>(Duration::ZERO).await;
    }
}
