//! What makes two requests one, and what does not.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderName, StatusCode};
use axum::routing::{any, post};
use end_to_end::{Answer, Client, Raw, Server, World, effects_app, on_every_database};
use http::Method;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::{Broken, clients, counter, counting, keyed, kind_of, layer};

/// R20, R21: a query or content type alone makes another request, and absent is not empty.
#[tokio::test]
async fn query_and_content_type_count() {
    let server = counting(layer()).await;
    for (key, client) in clients(&server) {
        let send = |target: &str, content_type: Option<&'static str>| {
            let request = keyed(&client, target, key).body("{}");
            let request = match content_type {
                Some(value) => request.header("content-type", value),
                None => request,
            };
            kind_of(request)
        };
        assert_eq!(send("/?a=1", Some("application/json")).await, "fresh");
        assert_eq!(send("/?a=1", Some("application/json")).await, "replay");
        assert_eq!(send("/?a=2", Some("application/json")).await, "key-reused");
        assert_eq!(
            send("/?a=%31", Some("application/json")).await,
            "key-reused"
        );
        assert_eq!(send("/?", Some("application/json")).await, "key-reused");
        assert_eq!(send("/", Some("application/json")).await, "key-reused");
        assert_eq!(send("/?a=1", Some("text/plain")).await, "key-reused");
        assert_eq!(
            send("/?a=1", Some("application/json; charset=utf-8")).await,
            "key-reused"
        );
        assert_eq!(send("/?a=1", Some("")).await, "key-reused");
        assert_eq!(send("/?a=1", None).await, "key-reused");
    }
}

/// R21: an absent query is not an empty one. By hand: clients drop the question mark.
#[tokio::test]
async fn an_empty_query_is_not_absent() {
    let server = counting(layer()).await;
    let status = async |target: &str| {
        let mut raw = Raw::connect(&server).await;
        let head = format!(
            "POST {target} HTTP/1.1\r\nhost: x\r\nx-owner: ann\r\nidempotency-key: k\r\n\r\n"
        );
        raw.send(head).await;
        raw.head().await.0
    };
    assert_eq!(status("/").await, StatusCode::CREATED);
    assert_eq!(status("/?").await, StatusCode::CONFLICT);
    assert_eq!(status("/").await, StatusCode::CREATED);
}

/// R20: the method counts; what changes between retries does not.
#[tokio::test]
async fn what_else_counts() {
    let app = Router::new().route("/", any(|| async { StatusCode::CREATED }).layer(layer()));
    let server = Server::start(app).await;
    for (key, client) in clients(&server) {
        let request = |method| client.request(method, "/").header("idempotency-key", key);
        assert_eq!(kind_of(request(Method::POST)).await, "fresh");
        assert_eq!(kind_of(request(Method::PATCH)).await, "key-reused");
        let changed = request(Method::POST)
            .header("authorization", "Bearer renewed")
            .header("cookie", "a=b")
            .header("user-agent", "another")
            .header("accept", "text/html")
            .header("date", "Thu, 01 Jan 1970 00:00:00 GMT")
            .header(
                "traceparent",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            )
            .header("x-anything", "else");
        assert_eq!(kind_of(changed).await, "replay");
    }
}

/// R20: how a body was cut into frames does not count.
#[tokio::test]
async fn framing_does_not_count() {
    let server = counting(layer()).await;
    let body = "one body in many frames";
    for (key, client) in clients(&server) {
        assert_eq!(kind_of(keyed(&client, "/", key).body(body)).await, "fresh");
        for size in [1, 7, 1_000] {
            let frames: Vec<_> = body
                .as_bytes()
                .chunks(size)
                .map(|chunk| Ok::<_, Broken>(Frame::data(Bytes::copy_from_slice(chunk))))
                .collect();
            let framed = reqwest::Body::wrap(StreamBody::new(futures_util::stream::iter(frames)));
            assert_eq!(
                kind_of(keyed(&client, "/", key).body(framed)).await,
                "replay",
                "{size}"
            );
        }
    }
    let mut raw = Raw::connect(&server).await;
    raw.send("POST / HTTP/1.1\r\nhost: x\r\nx-owner: ann\r\nidempotency-key: http1\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    raw.send("8\r\none body\r\nf;ext=1\r\n in many frames\r\n0\r\n\r\n")
        .await;
    let (status, head) = raw.head().await;
    assert_eq!(status, StatusCode::CREATED);
    assert!(head.contains("idempotent-replayed: true"), "{head}");
}

/// R22: under two prefixes one handler has two paths, unless the path is left out.
#[tokio::test]
async fn nested_under_two_prefixes() {
    let app = |layer| {
        let inner = Router::new().route("/things", counter().layer(layer));
        Router::new().nest("/v1", inner.clone()).nest("/v2", inner)
    };
    let counted = Server::start(app(layer())).await;
    let ignored = Server::start(app(layer().ignore_path())).await;
    for ((key, counted), (_, ignored)) in clients(&counted).into_iter().zip(clients(&ignored)) {
        assert_eq!(kind_of(keyed(&counted, "/v1/things", key)).await, "fresh");
        assert_eq!(kind_of(keyed(&counted, "/v1/things", key)).await, "replay");
        assert_eq!(
            kind_of(keyed(&counted, "/v2/things", key)).await,
            "key-reused"
        );

        assert_eq!(kind_of(keyed(&ignored, "/v1/things", key)).await, "fresh");
        assert_eq!(kind_of(keyed(&ignored, "/v2/things", key)).await, "replay");
        assert_eq!(
            kind_of(keyed(&ignored, "/v2/things?a", key)).await,
            "key-reused"
        );
    }
}

/// R5, R22: without a name, each prefix is an operation of its own.
#[tokio::test]
async fn routes_name_operations() {
    let layer =
        tower_idempotency::IdempotencyLayer::with_store(tower_idempotency::MemoryStore::new());
    let inner = Router::new().route("/things/{id}", counter().layer(layer));
    let app = Router::new().nest("/v1", inner.clone()).nest("/v2", inner);
    let server = Server::start(app).await;
    for (key, client) in clients(&server) {
        assert_eq!(kind_of(keyed(&client, "/v1/things/1", key)).await, "fresh");
        assert_eq!(kind_of(keyed(&client, "/v2/things/1", key)).await, "fresh");
        assert_eq!(
            kind_of(keyed(&client, "/v1/things/2", key)).await,
            "key-reused"
        );
    }
}

/// R23: a bound header counts: whether it is there, what its lines are, and their order.
#[tokio::test]
async fn bound_headers_count() {
    let name = HeaderName::from_static("x-api-version");
    let server = counting(layer().bind_header(name)).await;
    let sets: [&[&str]; 7] = [
        &[],
        &[""],
        &["1"],
        &["2"],
        &["1", "2"],
        &["2", "1"],
        &["1, 2"],
    ];
    for (protocol, client) in clients(&server) {
        for (first, one) in sets.iter().enumerate() {
            let key = format!("{protocol}-{first}");
            let send = |lines: &[&'static str]| {
                let request = keyed(&client, "/", &key);
                kind_of(lines.iter().fold(request, |request, line| {
                    request.header("x-api-version", *line)
                }))
            };
            assert_eq!(send(one).await, "fresh");
            for (second, other) in sets.iter().enumerate() {
                let expected = if first == second {
                    "replay"
                } else {
                    "key-reused"
                };
                assert_eq!(send(other).await, expected, "{one:?}, {other:?}");
            }
        }
    }
}

/// R12: two lines of Content-Type or Content-Encoding are refused, and leave the key unused.
#[tokio::test]
async fn two_content_types() {
    let server = counting(layer()).await;
    for (key, client) in clients(&server) {
        for name in ["content-type", "content-encoding"] {
            let request = keyed(&client, "/", key)
                .header(name, "a/b")
                .header(name, "a/b");
            let answer = Answer::of(request).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST);
            assert_eq!(answer.problem(), "request-invalid");
        }
        assert_eq!(kind_of(keyed(&client, "/", key)).await, "fresh");
    }
}

/// R24: what a function makes of the body counts in the place of the body.
#[tokio::test]
async fn canonical_bodies() {
    let canonical = |_: &http::request::Parts, body: &Bytes| Bytes::from(body.to_ascii_lowercase());
    let server = counting(layer().fingerprint_body_with(canonical)).await;
    for (key, client) in clients(&server) {
        assert_eq!(
            kind_of(keyed(&client, "/", key).body("Body")).await,
            "fresh"
        );
        assert_eq!(
            kind_of(keyed(&client, "/", key).body("bODY")).await,
            "replay"
        );
        assert_eq!(
            kind_of(keyed(&client, "/", key).body("body ")).await,
            "key-reused"
        );
        assert_eq!(
            kind_of(keyed(&client, "/?a", key).body("body")).await,
            "key-reused"
        );
    }
}

/// R20, R52: the same members in another order, and the same form with another boundary, are other
/// bytes: examples/fingerprints makes them equal.
#[tokio::test]
async fn bytes_count_and_not_their_meaning() {
    let server = counting(layer()).await;
    for (key, client) in clients(&server) {
        let json = |key: String, body| {
            keyed(&client, "/", &key)
                .header("content-type", "application/json")
                .body(body)
        };
        assert_eq!(
            kind_of(json(key.to_owned(), r#"{"a":1,"b":2}"#)).await,
            "fresh"
        );
        assert_eq!(
            kind_of(json(key.to_owned(), r#"{"b":2,"a":1}"#)).await,
            "key-reused"
        );

        let form = |boundary: &str| {
            let body = format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n1\r\n--{boundary}--\r\n"
            );
            let content_type = format!("multipart/form-data; boundary={boundary}");
            let key = format!("{key}-form");
            kind_of(
                keyed(&client, "/", &key)
                    .header("content-type", content_type)
                    .body(body),
            )
        };
        assert_eq!(form("one").await, "fresh");
        assert_eq!(form("one").await, "replay");
        assert_eq!(form("two").await, "key-reused");
    }
}

on_every_database! {
    /// R30, R52: while a request is running, another one with its key is a conflict, not progress.
    async fn in_progress_with_another_body<D>() {
        let world = World::<D>::new().await;
        let (entered, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let gates = (Arc::clone(&entered), Arc::clone(&leave));
        let slow = move |_: Bytes| {
            let (entered, leave) = gates.clone();
            async move {
                entered.add_permits(1);
                leave.acquire().await.expect("open").forget();
                StatusCode::CREATED
            }
        };
        let app = effects_app(&world.layer()).route("/slow", post(slow).layer(world.layer()));
        let server = Server::start(app).await;
        for (key, client) in clients(&server) {
            let first = tokio::spawn(Answer::of(keyed(&client, "/slow", key).json(&json!({"a": 1}))));
            entered.acquire().await.expect("open").forget();
            let same = Answer::of(keyed(&client, "/slow", key).json(&json!({"a": 1}))).await;
            assert_eq!(same.problem(), "in-progress");
            assert_eq!(same.headers["retry-after"], "1");
            let other = Answer::of(keyed(&client, "/slow", key).json(&json!({"a": 2}))).await;
            assert_eq!(other.problem(), "key-reused");
            assert_eq!(other.json()["retryable"], false);
            assert!(!other.headers.contains_key("retry-after"));
            leave.add_permits(1);
            assert_eq!(first.await.expect("an answer").status, StatusCode::CREATED);
        }
        world.end().await;
    }
}

/// R20: two clients, one of each version of HTTP, send one request.
#[tokio::test]
async fn versions_of_http_do_not_count() {
    let server = counting(layer()).await;
    let (one, two) = (Client::new(&server), Client::http2(&server));
    assert_eq!(one.post("/", "k", &json!({"a": 1})).await.body, "1");
    let second = two.post("/", "k", &json!({"a": 1})).await;
    assert!(second.is_replay());
    assert_eq!(second.body, "1");
}
