//! Request bodies: their limit, and what breaks off, is slow or has trailers.

use std::convert::Infallible;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use end_to_end::{Answer, Client, Raw, Server};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower_http::limit::RequestBodyLimitLayer;

use crate::support::{Broken, clients, counter, counting, erase, keyed, kind_of, layer};

/// The head of a request written by hand.
fn head(key: &str, more: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\nhost: x\r\nx-owner: ann\r\nidempotency-key: {key}\r\n{more}\r\n\r\n"
    )
}

/// R12: no `100 Continue` is sent for what is refused before its body: it would be sent in vain.
#[tokio::test]
async fn no_continue_for_what_is_refused() {
    let layer = layer().max_request_body(10);
    let server = counting(layer.clone()).await;
    for (key, length, status, problem) in [
        (
            "k",
            11_u64,
            StatusCode::PAYLOAD_TOO_LARGE,
            "request-too-large",
        ),
        (
            "k",
            4_294_967_296_u64,
            StatusCode::PAYLOAD_TOO_LARGE,
            "request-too-large",
        ),
        ("a,b", 1, StatusCode::BAD_REQUEST, "key-invalid"),
        ("", 1, StatusCode::BAD_REQUEST, "key-invalid"),
    ] {
        let mut raw = Raw::connect(&server).await;
        let expect = format!("expect: 100-continue\r\ncontent-length: {length}");
        raw.send(head(key, &expect)).await;
        let (first, text) = raw.head().await;
        assert_eq!(first, status, "{text}");
        raw.until(&format!("#{problem}")).await;
    }
    assert!(layer.store().is_empty());
}

/// R12: one is sent for what is accepted, and the body is then read.
#[tokio::test]
async fn continue_for_what_is_accepted() {
    let server = counting(layer().max_request_body(10)).await;
    let mut raw = Raw::connect(&server).await;
    raw.send(head("k", "expect: 100-continue\r\ncontent-length: 10"))
        .await;
    assert_eq!(raw.head().await.0, StatusCode::CONTINUE);
    raw.send("0123456789").await;
    assert_eq!(raw.head().await.0, StatusCode::CREATED);
}

/// R12: a body without length is refused as soon as it is over the limit.
#[tokio::test]
async fn chunked_over_the_limit() {
    let layer = layer().max_request_body(10);
    let server = counting(layer.clone()).await;
    let mut raw = Raw::connect(&server).await;
    raw.send(head("k", "transfer-encoding: chunked")).await;
    raw.send("a\r\n0123456789\r\n1\r\n0\r\n").await;
    assert_eq!(raw.head().await.0, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(layer.store().is_empty());

    let mut raw = Raw::connect(&server).await;
    raw.send(head("k", "transfer-encoding: chunked")).await;
    raw.send("a\r\n0123456789\r\n0\r\n\r\n").await;
    assert_eq!(raw.head().await.0, StatusCode::CREATED);
}

/// R12, R56: an upload that breaks off claims nothing, and its key is unused.
#[tokio::test]
async fn broken_off() {
    let layer = layer();
    let server = counting(layer.clone()).await;
    for framing in ["content-length: 10", "transfer-encoding: chunked"] {
        let mut raw = Raw::connect(&server).await;
        raw.send(head("http1", framing)).await;
        raw.send("5\r\n012").await;
        raw.finish().await;
        let rest = raw.rest().await;
        assert!(!rest.contains("201"), "{rest}");
        assert!(layer.store().is_empty());
    }
    let (mut sender, body) = http_body_util::channel::Channel::<Bytes, Broken>::new(1);
    let request = keyed(&Client::http2(&server), "/", "http2").body(reqwest::Body::wrap(body));
    let upload = tokio::spawn(Answer::try_of(request));
    sender.send_data("012".into()).await.expect("it is read");
    sender.abort(Broken);
    assert!(upload.await.expect("it ends").is_err());
    assert!(layer.store().is_empty());

    for (key, client) in clients(&server) {
        assert_eq!(kind_of(keyed(&client, "/", key)).await, "fresh");
    }
}

/// R12: a chunk that is malformed is answered 400, and claims nothing.
#[tokio::test]
async fn a_malformed_chunk() {
    let layer = layer();
    let server = counting(layer.clone()).await;
    let mut raw = Raw::connect(&server).await;
    raw.send(head("k", "transfer-encoding: chunked")).await;
    raw.send("zz\r\n").await;
    assert_eq!(raw.head().await.0, StatusCode::BAD_REQUEST);
    assert!(layer.store().is_empty());
}

/// R12: a slow upload claims nothing until it is whole: a quicker arrival of its key runs.
#[tokio::test]
async fn slow() {
    let layer = layer();
    let server = counting(layer.clone()).await;
    let mut slow = Raw::connect(&server).await;
    slow.send(head("k", "expect: 100-continue\r\ncontent-length: 4"))
        .await;
    // The layer is reading.
    assert_eq!(slow.head().await.0, StatusCode::CONTINUE);
    slow.send("bo").await;
    assert!(layer.store().is_empty());

    assert_eq!(
        kind_of(keyed(&Client::http2(&server), "/", "k").body("body")).await,
        "fresh"
    );
    slow.send("dy").await;
    let (status, text) = slow.head().await;
    assert_eq!(status, StatusCode::CREATED);
    assert!(text.contains("idempotent-replayed: true"), "{text}");
}

/// R12: the trailers of a request are lost; its body is whole.
#[tokio::test]
async fn trailers() {
    let handler = |request: Request| async {
        let body = request.into_body().collect().await.expect("a body");
        let trailers = body.trailers().is_some();
        format!("{}, {trailers}", body.to_bytes().len())
    };
    let server = Server::start(Router::new().route("/", post(handler).layer(layer()))).await;
    let mut raw = Raw::connect(&server).await;
    raw.send(head(
        "k",
        "te: trailers\r\ntrailer: x-sum\r\ntransfer-encoding: chunked",
    ))
    .await;
    raw.send("5\r\n01234\r\n0\r\nx-sum: 1\r\n\r\n").await;
    raw.until("5, false").await;
}

/// R12: extractors inside see the whole body, and refuse what they do not like.
#[tokio::test]
async fn extractors_inside() {
    let json =
        |Json(value): Json<Value>| async move { value["text"].to_string().len().to_string() };
    let bytes = |body: Bytes| async move { body.len().to_string() };
    let layer = layer();
    let app = Router::new()
        .route("/json", post(json).layer(layer.clone().operation("json")))
        .route(
            "/bytes",
            post(bytes).layer(layer.clone().operation("bytes")),
        );
    let server = Server::start(app).await;
    let text = "x".repeat(300_000);
    for (key, client) in clients(&server) {
        let answer = client.post("/json", key, &json!({"text": text})).await;
        assert_eq!(answer.body, "300002");
        let answer = Answer::of(keyed(&client, "/bytes", key).body(text.clone())).await;
        assert_eq!(answer.body, "300000");

        let refused = keyed(&client, "/json", "refused").header("content-type", "application/json");
        let refused = Answer::of(refused.body("{")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        assert_eq!(
            client
                .post("/json", "refused", &json!({"text": key}))
                .await
                .status,
            StatusCode::OK
        );
        // As for the next client.
        erase(&layer).await;
    }
}

/// R12, R54: axum's own limit still is the handler's to answer, and the key stays free.
#[tokio::test]
async fn axums_limit_inside() {
    let layer = layer();
    for app in [
        Router::new().route(
            "/",
            counter()
                .layer::<_, Infallible>(DefaultBodyLimit::max(10))
                .layer(layer.clone()),
        ),
        Router::new()
            .route("/", counter().layer(layer.clone()))
            .layer(DefaultBodyLimit::max(10)),
    ] {
        let server = Server::start(app).await;
        for (key, client) in clients(&server) {
            let answer = Answer::of(keyed(&client, "/", key).body("0123456789x")).await;
            assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
            assert_ne!(
                answer
                    .headers
                    .get("content-type")
                    .map(|value| value.as_bytes()),
                Some(&b"application/problem+json"[..])
            );
            assert!(layer.store().is_empty(), "freed");
        }
        let client = Client::new(&server);
        assert_eq!(
            kind_of(keyed(&client, "/", "whole").body("0123456789")).await,
            "fresh"
        );
        erase(&layer).await;
    }
}

/// R12: a limit outside that cuts the body is answered 413 too, by length and while reading.
#[tokio::test]
async fn a_limit_outside() {
    let layer = layer();
    let app = Router::new()
        .route("/", counter().layer(layer.clone()))
        .layer(RequestBodyLimitLayer::new(10));
    let server = Server::start(app).await;
    for (key, client) in clients(&server) {
        let by_length = Answer::of(keyed(&client, "/", key).body("0123456789x")).await;
        assert_eq!(by_length.status, StatusCode::PAYLOAD_TOO_LARGE);

        let (mut sender, body) = http_body_util::channel::Channel::<Bytes, Broken>::new(2);
        sender
            .send_data("0123456789".into())
            .await
            .expect("there is room");
        sender.send_data("x".into()).await.expect("there is room");
        drop(sender);
        let while_reading =
            Answer::of(keyed(&client, "/", key).body(reqwest::Body::wrap(body))).await;
        assert_eq!(while_reading.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(while_reading.problem(), "request-too-large");
        assert!(layer.store().is_empty());
        assert_eq!(
            kind_of(keyed(&client, "/", key).body("0123456789")).await,
            "fresh"
        );
        erase(&layer).await;
    }
}
