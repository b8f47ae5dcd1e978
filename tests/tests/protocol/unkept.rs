//! 2xx responses that cannot be kept: their client gets them, nobody gets them again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use end_to_end::{Answer, Client, Server, TestDb, World, on_every_database};
use http_body_util::channel::Sender;
use tower_idempotency::{IdempotencyLayer, SqlxStore, Tx};

use crate::support::{Broken, clients, keyed, written_body};

/// Where the handler leaves the writing end of its response's body.
type Writer = Arc<Mutex<Option<Sender<Bytes, Broken>>>>;

/// Writes an effect named by the request's key, and answers with a body that the test writes.
async fn stream<D: TestDb>(
    tx: Tx<D>,
    headers: http::HeaderMap,
    writer: Writer,
) -> Result<Response<Body>, Response<Body>> {
    let key = headers["idempotency-key"].to_str().expect("ASCII");
    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
    D::insert(&mut conn, key)
        .await
        .map_err(|_| StatusCode::CONFLICT.into_response())?;
    drop(conn);
    let (sender, body) = written_body();
    *writer.lock().expect("no panic") = Some(sender);
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::ACCEPTED;
    if key.starts_with("events") {
        let kind = header::HeaderValue::from_static("Text/Event-Stream; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    Ok(response)
}

fn app<D: TestDb>(layer: IdempotencyLayer<SqlxStore<D>>, writer: &Writer) -> Router {
    let writer = Arc::clone(writer);
    let handler =
        move |tx: Tx<D>, headers: http::HeaderMap| stream(tx, headers, Arc::clone(&writer));
    Router::new().route("/", post(handler).layer(layer))
}

async fn written(writer: &Writer) -> Sender<Bytes, Broken> {
    loop {
        if let Some(sender) = writer.lock().expect("no panic").take() {
            return sender;
        }
        tokio::task::yield_now().await;
    }
}

/// Nothing more comes. HTTP/2 may end with an empty frame.
async fn assert_ends(response: &mut reqwest::Response) {
    while let Some(chunk) = response.chunk().await.expect("a whole body") {
        assert_eq!(chunk, "");
    }
}

/// A later arrival is told that there was a result, and that it was 202.
async fn is_gone<D: TestDb>(world: &World<D>, client: &Client, key: &str) {
    for _ in 0..2 {
        let later = Answer::of(keyed(client, "/", key)).await;
        assert_eq!(later.status, StatusCode::GONE);
        assert_eq!(later.problem(), "result-not-kept");
        assert_eq!(later.json()["original_status"], 202);
        assert_eq!(later.json()["retryable"], false);
        assert!(!later.is_replay());
    }
    assert_eq!(world.effects(key).await, 1, "it never runs again");
    assert_eq!(world.records(key, "completed").await, 1);
}

on_every_database! {
    /// R43: over the limit, the first client gets every byte, and its effect is committed before
    /// the first of them.
    async fn over_the_limit<D>() {
        let world = World::<D>::new().await;
        let writer = Writer::default();
        let server = Server::start(app(world.layer().max_response_body(10), &writer)).await;
        for (key, client) in clients(&server) {
            let request = tokio::spawn(keyed(&client, "/", key).send());
            let mut sender = written(&writer).await;
            sender.send_data(Bytes::from_static(b"0123456789")).await.expect("it is read");
            assert_eq!(world.effects(key).await, 0, "it can still be kept");
            sender.send_data(Bytes::from_static(b"a")).await.expect("it is read");
            let mut first = request.await.expect("no panic").expect("an answer");
            assert_eq!(first.status(), StatusCode::ACCEPTED);
            assert_eq!(world.effects(key).await, 1, "committed before the first byte");
            assert_eq!(world.records(key, "completed").await, 1);

            let mut body = first.chunk().await.expect("a chunk").expect("a chunk").to_vec();
            sender.send_data(Bytes::from_static(b"bc")).await.expect("it is read");
            drop(sender);
            while let Some(chunk) = first.chunk().await.expect("a chunk") {
                body.extend_from_slice(&chunk);
            }
            assert_eq!(body, b"0123456789abc");
            is_gone(&world, &client, key).await;
        }
        world.end().await;
    }

    /// R43: an event stream is served event by event, however short it is.
    async fn an_event_stream<D>() {
        let world = World::<D>::new().await;
        let writer = Writer::default();
        let server = Server::start(app(world.layer(), &writer)).await;
        for (protocol, client) in clients(&server) {
            let key = format!("events-{protocol}");
            let mut first = keyed(&client, "/", &key).send().await.expect("an answer");
            assert_eq!(world.effects(&key).await, 1);
            let mut sender = written(&writer).await;
            for event in ["data: 1\n\n", "data: 2\n\n"] {
                sender.send_data(event.into()).await.expect("it is read");
                assert_eq!(first.chunk().await.expect("a chunk").expect("an event"), event);
            }
            drop(sender);
            assert_ends(&mut first).await;
            is_gone(&world, &client, &key).await;
        }
        world.end().await;
    }

    /// R43: a body that trickles past the capture time goes on to its end.
    async fn past_the_capture_time<D>() {
        let world = World::<D>::new().await;
        let writer = Writer::default();
        let layer = world.layer().capture_within(Duration::from_millis(300));
        let server = Server::start(app(layer, &writer)).await;
        for (key, client) in clients(&server) {
            let request = tokio::spawn(keyed(&client, "/", key).send());
            let mut sender = written(&writer).await;
            sender.send_data("drop".into()).await.expect("it is read");
            // Nothing more is written until the answer has begun.
            let mut first = request.await.expect("no panic").expect("an answer");
            assert_eq!(world.effects(key).await, 1);
            assert_eq!(first.chunk().await.expect("a chunk").expect("a chunk"), "drop");
            sender.send_data("by".into()).await.expect("it is read");
            assert_eq!(first.chunk().await.expect("a chunk").expect("a chunk"), "by");
            sender.send_data("drop".into()).await.expect("it is read");
            drop(sender);
            assert_eq!(first.chunk().await.expect("a chunk").expect("a chunk"), "drop");
            assert_ends(&mut first).await;
            is_gone(&world, &client, key).await;
        }
        world.end().await;
    }

    /// R43, R56: an endless body is served for as long as its client stays.
    async fn an_endless_body<D>() {
        let world = World::<D>::new().await;
        let writer = Writer::default();
        let server = Server::start(app(world.layer(), &writer)).await;
        for (key, client) in clients(&server) {
            let request = tokio::spawn(keyed(&client, "/", key).send());
            let mut sender = written(&writer).await;
            let endless = tokio::spawn(async move {
                let block = Bytes::from(vec![b'x'; 64 << 10]);
                while sender.send_data(block.clone()).await.is_ok() {}
            });
            let mut first = request.await.expect("no panic").expect("an answer");
            let mut read = 0;
            while read < 3 << 20 {
                read += first.chunk().await.expect("a chunk").expect("no end").len();
            }
            assert_eq!(world.effects(key).await, 1);
            drop(first);
            endless.await.expect("the body is dropped with its client");
            is_gone(&world, &client, key).await;
        }
        world.end().await;
    }

    /// R43: a body that breaks off after the commit is broken for its client, and the effect stays.
    async fn broken_after_the_commit<D>() {
        let world = World::<D>::new().await;
        let writer = Writer::default();
        let server = Server::start(app(world.layer().max_response_body(1), &writer)).await;
        for (key, client) in clients(&server) {
            let request = tokio::spawn(keyed(&client, "/", key).send());
            let mut sender = written(&writer).await;
            sender.send_data("xy".into()).await.expect("it is read");
            let mut first = request.await.expect("no panic").expect("an answer");
            assert_eq!(first.chunk().await.expect("a chunk").expect("a chunk"), "xy");
            sender.abort(Broken);
            assert!(first.chunk().await.is_err());
            is_gone(&world, &client, key).await;
        }
        world.end().await;
    }
}

/// R43: a length that says that it is over the limit is believed before a byte is read.
#[tokio::test]
async fn over_the_limit_by_its_length() {
    let handler = || async { (StatusCode::ACCEPTED, vec![b'x'; 11]) };
    let layer = crate::support::layer().max_response_body(10);
    let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
    for (key, client) in clients(&server) {
        let first = Answer::of(keyed(&client, "/", key)).await;
        assert_eq!((first.status, first.body.len()), (StatusCode::ACCEPTED, 11));
        assert_eq!(first.headers["content-length"], "11");
        assert_eq!(
            Answer::of(keyed(&client, "/", key)).await.problem(),
            "result-not-kept"
        );
    }
}
