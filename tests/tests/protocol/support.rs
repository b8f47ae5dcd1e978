//! Servers without a database, for what concerns HTTP alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{MethodRouter, post};
use end_to_end::{Answer, Client, Server};
use http_body_util::BodyExt as _;
use http_body_util::channel::{Channel, Sender};
use tower_idempotency::{IdempotencyLayer, MemoryStore, Owner, Store as _};

/// A layer over a fresh store in memory.
pub(crate) fn layer() -> IdempotencyLayer<MemoryStore> {
    IdempotencyLayer::with_store(MemoryStore::new()).operation("count")
}

/// Forgets every record of the owner of all requests.
pub(crate) async fn erase(layer: &IdempotencyLayer<MemoryStore>) {
    let ann = Owner::new("ann").expect("an owner");
    layer.store().erase_owner(&ann).await.expect("no error");
}

/// Reads its whole body, and answers 201 with how often it has run.
pub(crate) fn counter() -> MethodRouter {
    let runs = Arc::new(AtomicUsize::new(0));
    post(move |_: Bytes| {
        let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
        async move { (StatusCode::CREATED, run.to_string()) }
    })
}

/// Serves a [`counter`] at `/`.
pub(crate) async fn counting(layer: IdempotencyLayer<MemoryStore>) -> Server {
    Server::start(Router::new().route("/", counter().layer(layer))).await
}

/// A client of each version of HTTP, with a name to make keys of.
pub(crate) fn clients(server: &Server) -> [(&'static str, Client); 2] {
    [
        ("http1", Client::new(server)),
        ("http2", Client::http2(server)),
    ]
}

/// A request with a key.
pub(crate) fn keyed(client: &Client, path: &str, key: &str) -> reqwest::RequestBuilder {
    client
        .request(http::Method::POST, path)
        .header("idempotency-key", key)
}

/// What an answer is: `fresh`, `replay`, or a problem's name.
pub(crate) fn kind(answer: &Answer) -> String {
    match (answer.status.is_success(), answer.is_replay()) {
        (true, true) => "replay".to_owned(),
        (true, false) => "fresh".to_owned(),
        (false, _) => answer.problem(),
    }
}

/// Sends a request, and says what its answer is.
pub(crate) async fn kind_of(request: reqwest::RequestBuilder) -> String {
    kind(&Answer::of(request).await)
}

/// The lines of a header, in order.
pub(crate) fn lines(headers: &HeaderMap, name: &str) -> Vec<Vec<u8>> {
    let lines = headers.get_all(name).iter();
    lines.map(|line| line.as_bytes().to_vec()).collect()
}

/// A body of unknown length, and who writes it.
pub(crate) fn written_body() -> (Sender<Bytes, Broken>, Body) {
    let (sender, body) = Channel::new(1);
    (sender, Body::new(body))
}

/// Why a written body breaks off.
#[derive(Debug)]
pub(crate) struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken off on purpose")
    }
}

impl std::error::Error for Broken {}

/// Sends a request and reads its answer with its trailers.
pub(crate) async fn with_trailers(
    request: reqwest::RequestBuilder,
) -> (http::response::Parts, Bytes, Option<HeaderMap>) {
    let response: http::Response<reqwest::Body> = request.send().await.expect("an answer").into();
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body");
    let trailers = body.trailers().cloned();
    (head, body.to_bytes(), trailers)
}
