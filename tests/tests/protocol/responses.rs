//! What is kept of a response, and how it comes back.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::post;
use end_to_end::{Answer, Client, Raw, Server, World, on_every_database};
use http::HeaderMap;
use tower_idempotency::Tx;

use crate::support::{Broken, clients, keyed, kind, layer, lines, written_body};

/// A response with those header lines.
fn response(
    status: StatusCode,
    headers: &[(&'static str, &[u8])],
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(value).expect("a field line");
        response
            .headers_mut()
            .append(HeaderName::from_static(name), value);
    }
    response
}

const ORNATE: &[(&str, &[u8])] = &[
    ("location", b"/things/1"),
    ("etag", b"W/\"1\""),
    ("link", b"</b>; rel=\"next\""),
    ("set-cookie", b"a=1"),
    ("link", b"</a>; rel=\"prev\""),
    ("set-cookie", b"b=2"),
    ("content-type", b"text/plain"),
    (
        "content-disposition",
        b"attachment; filename=\"\xff\x80\xe4.txt\"",
    ),
    ("content-language", b"de"),
    ("content-language", b"de"),
    ("content-location", b""),
    ("cache-control", b"private"),
    ("vary", b"Accept"),
    ("date", b"Thu, 01 Jan 1970 00:00:00 GMT"),
    ("x-kept", b"\xfe\xff"),
    ("x-other", b"1"),
    ("age", b"1"),
    ("server-timing", b"db"),
    ("access-control-allow-origin", b"*"),
    ("idempotent-replayed", b"faked"),
];

const KEPT: &[&str] = &[
    "location",
    "etag",
    "link",
    "content-type",
    "content-disposition",
    "content-language",
    "content-location",
    "cache-control",
    "vary",
    "x-kept",
];

const NOT_KEPT: &[&str] = &[
    "set-cookie",
    "x-other",
    "age",
    "server-timing",
    "access-control-allow-origin",
];

on_every_database! {
    /// R40, R41, R42, R51: of a 201 with headers of every kind the kept ones come back line by line
    /// and byte by byte; the date is made anew, and a mark that the handler faked is taken away.
    async fn headers_of_every_kind<D>() {
        let world = World::<D>::new().await;
        let layer = world.layer().keep_header(HeaderName::from_static("x-kept")).keep_header(http::header::DATE);
        let handler = || async { response(StatusCode::CREATED, ORNATE, "made") };
        let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
        for (key, client) in clients(&server) {
            let first = Answer::of(keyed(&client, "/", key)).await;
            assert!(!first.headers.contains_key("idempotent-replayed"));
            let made = response(StatusCode::CREATED, ORNATE, "").into_parts().0.headers;
            for name in KEPT.iter().chain(NOT_KEPT).chain(&["date"]) {
                assert_eq!(lines(&first.headers, name), lines(&made, name), "{name}: as the handler made it");
            }
            let second = Answer::of(keyed(&client, "/", key)).await;
            assert!(second.is_replay());
            assert_eq!((second.status, &second.body[..]), (StatusCode::CREATED, &b"made"[..]));
            for name in KEPT {
                assert_eq!(lines(&second.headers, name), lines(&made, name), "{name}");
            }
            for name in NOT_KEPT {
                assert!(!second.headers.contains_key(*name), "{name}");
            }
            assert_eq!(lines(&second.headers, "idempotent-replayed"), [b"true"]);
            assert_ne!(lines(&second.headers, "date"), lines(&made, "date"), "made anew");
            assert_eq!(second.headers["content-length"], "4");
        }
        world.end().await;
    }

    /// R54: a 2xx whose body breaks off before the commit is none: rolled back, freed, and a retry
    /// runs.
    async fn a_body_that_breaks_off<D>() {
        let world = World::<D>::new().await;
        let breaking = move |tx: Tx<D>, whole: String| async move {
            let mut conn = tx.acquire().await.map_err(axum::response::IntoResponse::into_response)?;
            D::insert(&mut conn, "x").await.map_err(|_| StatusCode::CONFLICT.into_response())?;
            drop(conn);
            let (mut sender, body) = written_body();
            tokio::spawn(async move {
                sender.send_data(Bytes::from_static(b"half")).await.expect("it is read");
                if whole != "whole" {
                    sender.abort(Broken);
                }
            });
            Ok::<_, Response<Body>>(Response::new(body))
        };
        let layer = world.layer().fingerprint_body_with(|_, _| Bytes::new());
        let server = Server::start(Router::new().route("/", post(breaking).layer(layer))).await;
        for (n, (key, client)) in clients(&server).into_iter().enumerate() {
            let broken = Answer::of(keyed(&client, "/", key).body("broken")).await;
            assert_eq!(broken.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(broken.problem(), "response-failed");
            assert_eq!(world.effects("x").await, i64::try_from(n).expect("few"));
            assert_eq!(world.records(key, "claimed").await, 0);
            let retried = Answer::of(keyed(&client, "/", key).body("whole")).await;
            assert_eq!((kind(&retried), &retried.body[..]), ("fresh".to_owned(), &b"half"[..]));
        }
        world.end().await;
    }
}

/// R41: what Connection names belongs to that connection, even if it is to be kept.
#[tokio::test]
async fn headers_that_connection_names() {
    let handler = || async {
        let headers: &[(&'static str, &[u8])] = &[
            ("connection", b"X-Hop , etag"),
            ("x-hop", b"1"),
            ("etag", b"\"1\""),
            ("x-kept", b"1"),
            ("keep-alive", b"timeout=5"),
        ];
        response(StatusCode::CREATED, headers, "")
    };
    let layer = ["x-hop", "x-kept", "connection", "keep-alive"]
        .into_iter()
        .fold(layer(), |layer, name| {
            layer.keep_header(HeaderName::from_static(name))
        });
    let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
    let client = Client::new(&server);
    let first = Answer::of(keyed(&client, "/", "k")).await;
    assert_eq!(
        (&first.headers["x-hop"], &first.headers["etag"]),
        (
            &HeaderValue::from_static("1"),
            &HeaderValue::from_static("\"1\"")
        )
    );
    let second = Answer::of(keyed(&client, "/", "k")).await;
    assert_eq!(kind(&second), "replay");
    for name in ["connection", "keep-alive", "x-hop", "etag"] {
        assert!(!second.headers.contains_key(name), "{name}");
    }
    assert_eq!(second.headers["x-kept"], "1");
}

/// R42, R51: another mark, where one was chosen, is the one that a handler cannot fake.
#[tokio::test]
async fn another_mark() {
    let headers: &[(&'static str, &[u8])] = &[("x-replayed", b"faked")];
    let handler = move || async move { response(StatusCode::OK, headers, "") };
    let layer = layer().replay_header(HeaderName::from_static("x-replayed"));
    let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
    for (key, client) in clients(&server) {
        let first = Answer::of(keyed(&client, "/", key)).await;
        assert!(!first.headers.contains_key("x-replayed"));
        let second = Answer::of(keyed(&client, "/", key)).await;
        assert_eq!(second.headers["x-replayed"], "true");
        assert!(!second.headers.contains_key("idempotent-replayed"));
    }
}

/// R51: 204 and 205 come back without body, and 200 with an empty one.
#[tokio::test]
async fn empty_responses() {
    let handler = |status: String| async move {
        let status = status.parse().expect("a status");
        response(
            status,
            &[("etag", b"\"1\"")],
            if status == StatusCode::RESET_CONTENT {
                "junk"
            } else {
                ""
            },
        )
    };
    let server = Server::start(Router::new().route("/", post(handler).layer(layer()))).await;
    for (protocol, client) in clients(&server) {
        for status in ["200", "204", "205"] {
            let key = format!("{protocol}-{status}");
            let first = Answer::of(keyed(&client, "/", &key).body(status)).await;
            let second = Answer::of(keyed(&client, "/", &key).body(status)).await;
            assert!(!first.is_replay() && second.is_replay());
            assert_eq!(second.status.as_str(), status);
            assert_eq!(second.headers["etag"], "\"1\"");
            assert!(second.body.is_empty(), "{status}");
            let length = |answer: &Answer| answer.headers.get("content-length").cloned();
            if status == "205" {
                assert_eq!(length(&second), Some(HeaderValue::from_static("0")));
            } else {
                // axum gives a 204 a length, and HTTP/2 lets it through: it is none of the layer's.
                assert_eq!(length(&second), length(&first));
            }
        }
    }
    let mut raw = Raw::connect(&server).await;
    let head = "POST / HTTP/1.1\r\nhost: x\r\nx-owner: ann\r\nidempotency-key: http1-204\r\ncontent-length: 3\r\nconnection: close\r\n\r\n204";
    raw.send(head).await;
    let (status, head) = raw.head().await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert!(
        !head.contains("content-length") && !head.contains("transfer-encoding"),
        "{head}"
    );
    assert_eq!(raw.rest().await, "");
}

/// R51: a 2xx without length, in many frames, is kept up to the limit and comes back with one.
#[tokio::test]
async fn a_body_without_length() {
    const LIMIT: usize = 100_000;
    let handler = || async {
        let (mut sender, body) = written_body();
        tokio::spawn(async move {
            for chunk in (0..=250_u8)
                .cycle()
                .take(LIMIT)
                .collect::<Vec<_>>()
                .chunks(7_001)
            {
                sender
                    .send_data(Bytes::copy_from_slice(chunk))
                    .await
                    .expect("it is read");
            }
        });
        Response::new(body)
    };
    let layer = layer().max_response_body(LIMIT);
    let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
    for (key, client) in clients(&server) {
        let first = Answer::of(keyed(&client, "/", key)).await;
        let second = Answer::of(keyed(&client, "/", key)).await;
        assert!(!first.is_replay() && second.is_replay());
        assert_eq!(first.body.len(), LIMIT);
        assert_eq!(second.body, first.body);
        assert_eq!(second.headers["content-length"], LIMIT.to_string());
    }
}

/// R45: the trailers of a response are kept and replayed.
#[tokio::test]
async fn trailers() {
    let handler = || async {
        let (mut sender, body) = written_body();
        tokio::spawn(async move {
            sender
                .send_data(Bytes::from_static(b"data"))
                .await
                .expect("it is read");
            let trailers = HeaderMap::from_iter([
                (
                    HeaderName::from_static("x-sum"),
                    HeaderValue::from_static("1"),
                ),
                (
                    HeaderName::from_static("date"),
                    HeaderValue::from_static("never kept"),
                ),
            ]);
            sender.send_trailers(trailers).await.expect("they are read");
        });
        response(StatusCode::OK, &[("trailer", b"x-sum")], body)
    };
    let server = Server::start(Router::new().route("/", post(handler).layer(layer()))).await;
    let client = Client::http2(&server);
    for replayed in [false, true] {
        let (head, body, trailers) = crate::support::with_trailers(keyed(&client, "/", "k")).await;
        assert_eq!(head.headers.contains_key("idempotent-replayed"), replayed);
        assert_eq!(body, "data");
        let trailers = trailers.expect("trailers");
        assert_eq!(trailers["x-sum"], "1");
        assert_eq!(trailers.contains_key("date"), !replayed);
    }
}
