//! Clients that hang up.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Client, Server, TestDb, World, on_every_database};
use http::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tower_idempotency::Tx;

#[derive(Default)]
struct Steps {
    running: Notify,
    go_on: Notify,
}

fn app<D: TestDb>(world: &World<D>, steps: &Arc<Steps>) -> Router {
    let steps = Arc::clone(steps);
    let handler = move |tx: Tx<D>| {
        let steps = Arc::clone(&steps);
        async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            D::insert(&mut conn, "x").await.expect("an insert");
            steps.running.notify_one();
            steps.go_on.notified().await;
            Ok::<_, Response>(StatusCode::CREATED)
        }
    };
    Router::new().route("/", post(handler).layer(world.layer()))
}

async fn completed<D: TestDb>(world: &World<D>, key: &str) {
    while world.records(key, "completed").await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

on_every_database! {
    /// R56: a client that hangs up while its handler runs cuts nothing: the work is committed, and
    /// the retry gets its result.
    async fn hanging_up_does_not_stop_the_work<D>() {
        let world = World::<D>::new().await;
        let steps = Arc::new(Steps::default());
        let server = Server::start(app(&world, &steps)).await;
        for (key, client) in [("h1", Client::new(&server)), ("h2", Client::http2(&server))] {
            let request = client.request(Method::POST, "/").header("idempotency-key", key);
            let sent = tokio::spawn(request.json(&json!({})).send());
            steps.running.notified().await;
            sent.abort();
            assert!(sent.await.is_err_and(|error| error.is_cancelled()));
            assert_eq!(client.post("/", key, &json!({})).await.problem(), "in-progress");
            steps.go_on.notify_one();
            completed(&world, key).await;
            let retry = client.post("/", key, &json!({})).await;
            assert!(retry.is_replay(), "{retry:?}");
        }
        assert_eq!(world.effects("x").await, 2);
        world.end().await;
    }

    /// R56: an upload that is cut off leaves no trace.
    async fn an_aborted_upload_claims_nothing<D>() {
        let world = World::<D>::new().await;
        let server = Server::start(app(&world, &Arc::default())).await;
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let head = "POST / HTTP/1.1\r\nhost: x\r\nx-owner: ann\r\nidempotency-key: k\r\ncontent-length: 100\r\n\r\n{";
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        // The server closes its side when it has given up.
        let mut answer = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut answer).await;
        for state in ["claimed", "completed"] {
            assert_eq!(world.records("k", state).await, 0);
        }
        world.end().await;
    }
}
