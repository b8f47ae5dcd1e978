//! A layer is drained under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use end_to_end::{
    Answer, Client, Server, TestDb, World, effects_app, on_every_database, on_every_server,
};
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

on_every_server! {
    /// R59: a claim that hangs in the database holds nobody up: it is answered 503 once there is no
    /// more time, and what it may still come to claim is freed.
    async fn draining_waits_for_no_claim<D>() {
        let world = World::<D>::new().await;
        let layer = world.layer();
        let server = Server::start(effects_app(&layer)).await;
        let client = Client::new(&server);
        let mut lock = world.pool.acquire().await.unwrap();
        let (locking, unlocking) = match D::NAME {
            "MySQL" => ("LOCK TABLES {records} WRITE", "UNLOCK TABLES"),
            _ => ("BEGIN; LOCK TABLE {records}", "ROLLBACK"),
        };
        D::run(&mut lock, locking).await.unwrap();
        let hanging = tokio::spawn(async move {
            client.post("/effects", "k", &json!({"note": "k"})).await
        });
        let waiting = match D::NAME {
            "MySQL" => "SELECT count(*) FROM information_schema.processlist \
                 WHERE db = database() AND state LIKE concat('%metadata lock', $1)",
            _ => "SELECT count(*) FROM pg_locks WHERE NOT granted AND $1 = '' \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        };
        while D::count(&world.pool, waiting, "").await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }

        let draining = tokio::spawn(async move { layer.drain(Duration::ZERO).await });
        let answer = timeout(Duration::from_secs(4), hanging).await;
        let answer = answer.expect("not as long as the database").unwrap();
        assert_eq!(answer.problem(), "busy");
        D::run(&mut lock, unlocking).await.unwrap();
        assert_eq!(draining.await.unwrap(), 0, "nothing is left");
        drop(lock);
        assert_eq!(world.records("k", "claimed").await, 0);
        assert_eq!(world.effects("k").await, 0);
        world.end().await;
    }
}
