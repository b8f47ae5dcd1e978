//! What a browser would send, and what it would let a page read.

use std::collections::BTreeSet;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use end_to_end::{Answer, Client, Server};
use serde_json::json;
use tower_idempotency::{IdempotencyLayer, MemoryStore};

use crate::app;

const PAGE: HeaderValue = HeaderValue::from_static("http://localhost:8080");

async fn serve(layer: IdempotencyLayer<MemoryStore>) -> (Server, [Client; 2]) {
    let server = Server::start(app::router(PAGE, layer)).await;
    let clients = [Client::new(&server), Client::http2(&server)];
    (server, clients)
}

fn layer() -> IdempotencyLayer<MemoryStore> {
    IdempotencyLayer::with_store(MemoryStore::new())
}

/// The names in a list of headers, in lower case.
fn names(headers: &HeaderMap, name: &str) -> BTreeSet<String> {
    let lines = headers.get_all(name).iter();
    lines
        .flat_map(|line| line.to_str().expect("ASCII").split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

/// What the page does: posts an order with a key.
async fn order(client: &Client, key: &str, what: &str) -> Answer {
    let request = client
        .request(Method::POST, "/orders")
        .header("origin", PAGE)
        .header("x-demo-user", "ann");
    Answer::of(
        request
            .header("idempotency-key", key)
            .json(&json!({"what": what})),
    )
    .await
}

/// R4: a preflight has no key, no owner and no body, and passes a layer that requires keys: it is
/// told that the key may be sent.
#[tokio::test]
async fn a_preflight_passes() {
    let (_server, clients) = serve(layer()).await;
    for client in &clients {
        let preflight = client
            .request(Method::OPTIONS, "/orders")
            .header("origin", PAGE)
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "content-type,idempotency-key,x-demo-user",
            );
        let answer = Answer::of(preflight).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers["access-control-allow-origin"], PAGE);
        assert!(names(&answer.headers, "access-control-allow-methods").contains("post"));
        let allowed = names(&answer.headers, "access-control-allow-headers");
        for name in ["content-type", "idempotency-key", "x-demo-user"] {
            assert!(allowed.contains(name), "{name}");
        }
    }
}

/// R4: a preflight also passes where CORS is inside of the layer, which leaves OPTIONS alone.
#[tokio::test]
async fn a_preflight_passes_the_layer_itself() {
    let handler = axum::routing::post(|| async { StatusCode::CREATED });
    let app = axum::Router::new().route("/orders", handler.layer(app::cors(PAGE)));
    let server = Server::start(app.layer(layer().operation("order"))).await;
    for client in [Client::new(&server), Client::http2(&server)] {
        let preflight = client
            .request(Method::OPTIONS, "/orders")
            .header("origin", PAGE)
            .header("access-control-request-method", "POST");
        let answer = Answer::of(preflight).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers["access-control-allow-origin"], PAGE);
    }
}

/// R41, R51: the page can read the mark of a replay, and the headers that came with the result;
/// those of CORS are made anew for each answer.
#[tokio::test]
async fn a_replay_shows_its_mark() {
    let (_server, clients) = serve(layer()).await;
    for (n, client) in clients.iter().enumerate() {
        for replayed in [false, true] {
            let answer = order(client, &n.to_string(), "tea").await;
            assert_eq!(answer.status, StatusCode::CREATED);
            assert_eq!(answer.is_replay(), replayed);
            assert_eq!(answer.headers["location"], "/orders/tea");
            assert_eq!(
                answer
                    .headers
                    .get_all("access-control-allow-origin")
                    .iter()
                    .count(),
                1
            );
            let readable = names(&answer.headers, "access-control-expose-headers");
            for name in ["idempotent-replayed", "location", "retry-after"] {
                assert!(readable.contains(name), "{name}");
            }
        }
    }
}

/// R44: the page can read problems too, and when to retry.
#[tokio::test]
async fn problems_are_readable() {
    let (_server, [client, _]) = serve(layer().max_in_flight(0)).await;
    let busy = order(&client, "k", "tea").await;
    assert_eq!(busy.problem(), "busy");
    assert_eq!(busy.headers["access-control-allow-origin"], PAGE);
    assert!(names(&busy.headers, "access-control-expose-headers").contains("retry-after"));
    assert_eq!(busy.headers["retry-after"], "1");
}
