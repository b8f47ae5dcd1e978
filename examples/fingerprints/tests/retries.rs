//! Retries that are written differently, over real sockets.

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use end_to_end::{Answer, Client, Server};
use fingerprints::{canonical_form, canonical_json};
use http::Method;
use tower_idempotency::{IdempotencyLayer, MemoryStore};

async fn clients(layer: IdempotencyLayer<MemoryStore>) -> (Server, [Client; 2]) {
    let handler = |body: Bytes| async move { body };
    let app = Router::new().route("/", post(handler).layer(layer.operation("echo")));
    let server = Server::start(app).await;
    let clients = [Client::new(&server), Client::http2(&server)];
    (server, clients)
}

async fn send(client: &Client, key: usize, content_type: String, body: String) -> Answer {
    let request = client
        .request(Method::POST, "/")
        .header("idempotency-key", key);
    Answer::of(request.header("content-type", content_type).body(body)).await
}

/// R24: the same JSON with its members in another order is the same request, and other JSON is not.
#[tokio::test]
async fn json_in_another_order() {
    let layer =
        IdempotencyLayer::with_store(MemoryStore::new()).fingerprint_body_with(canonical_json);
    let (_server, clients) = clients(layer).await;
    for (n, client) in clients.iter().enumerate() {
        let send = |body: &str| send(client, n, "application/json".into(), body.into());
        let first = send(r#"{"a":1,"b":[{"x":1,"y":2}]}"#).await;
        assert!(first.status.is_success() && !first.is_replay());
        let second = send("{ \"b\": [{\"y\":2, \"x\":1}], \"a\": 1 }").await;
        assert!(second.is_replay());
        assert_eq!(second.body, first.body);
        assert_eq!(
            send(r#"{"a":1,"b":[{"x":1,"y":3}]}"#).await.problem(),
            "key-reused"
        );
    }
}

/// R24: the same form with another boundary is the same request, and another form is not.
#[tokio::test]
async fn a_form_with_another_boundary() {
    let layer =
        IdempotencyLayer::with_store(MemoryStore::new()).fingerprint_body_with(canonical_form);
    let (_server, clients) = clients(layer).await;
    for (n, client) in clients.iter().enumerate() {
        let send = |boundary: &str, value: &str| {
            let content_type = format!("multipart/form-data; boundary={boundary}");
            let disposition = "content-disposition: form-data; name=\"file\"; filename=\"a.txt\"";
            let body =
                format!("--{boundary}\r\n{disposition}\r\n\r\n{value}\r\n--{boundary}--\r\n");
            send(client, n, content_type, body)
        };
        let first = send("one", "content").await;
        assert!(first.status.is_success() && !first.is_replay());
        let second = send("two", "content").await;
        assert!(second.is_replay(), "{second:?}");
        assert_eq!(second.body, first.body);
        assert_eq!(send("three", "other").await.problem(), "key-reused");
    }
}
