//! The header that carries the key, over both versions of HTTP.

use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use end_to_end::{Answer, Client, Raw, Server};

use crate::support::{clients, counting, keyed, kind, kind_of, layer};

fn with_bytes(client: &Client, key: &[u8]) -> reqwest::RequestBuilder {
    let key = HeaderValue::from_bytes(key).expect("a field line");
    client
        .request(Method::POST, "/")
        .header("idempotency-key", key)
}

/// A request written by hand, with that key.
async fn raw(server: &Server, key: &[u8]) -> StatusCode {
    let mut raw = Raw::connect(server).await;
    let head =
        b"POST / HTTP/1.1\r\nhost: x\r\nx-owner: ann\r\ncontent-length: 0\r\nidempotency-key: ";
    raw.send([&head[..], key, b"\r\n\r\n"].concat()).await;
    raw.head().await.0
}

/// R1: two field lines are refused, even if they are equal, and leave the key unused.
#[tokio::test]
async fn two_field_lines() {
    let server = counting(layer()).await;
    for (key, client) in clients(&server) {
        for second in [key, "other", ""] {
            let request = keyed(&client, "/", key).header("idempotency-key", second);
            let answer = Answer::of(request).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST);
            assert_eq!(answer.problem(), "key-invalid");
        }
        assert_eq!(kind_of(keyed(&client, "/", key)).await, "fresh");
    }
}

/// R2: quoted, bare, escaped and with parameters, one key is one record.
#[tokio::test]
async fn forms_of_one_key() {
    let server = counting(layer()).await;
    for (key, client) in clients(&server) {
        assert_eq!(kind_of(keyed(&client, "/", key)).await, "fresh");
        for form in [
            format!("\"{key}\""),
            format!("\"{key}\";v=1; w=\"x\""),
            format!("  {key}\t"),
        ] {
            assert_eq!(
                kind_of(keyed(&client, "/", &form)).await,
                "replay",
                "{form}"
            );
        }
        let escaped = [format!("\"{key}\\\\\""), format!("\"{key}\\\"\"")];
        for form in escaped {
            assert_eq!(kind_of(keyed(&client, "/", &form)).await, "fresh", "{form}");
            assert_eq!(
                kind_of(keyed(&client, "/", &form)).await,
                "replay",
                "{form}"
            );
        }
    }
}

/// R2: a key has 1 to 255 bytes; what is shorter or longer is refused.
#[tokio::test]
async fn lengths() {
    let server = counting(layer()).await;
    for (fill, client) in [("a", Client::new(&server)), ("b", Client::http2(&server))] {
        for (length, expected) in [
            (0, "key-invalid"),
            (1, "fresh"),
            (255, "fresh"),
            (256, "key-invalid"),
            (8_192, "key-invalid"),
        ] {
            let bare = fill.repeat(length);
            assert_eq!(
                kind_of(keyed(&client, "/", &bare)).await,
                expected,
                "{length}"
            );
            let quoted = format!("\"{bare}\"");
            let expected = if expected == "fresh" {
                "replay"
            } else {
                expected
            };
            assert_eq!(
                kind_of(keyed(&client, "/", &quoted)).await,
                expected,
                "{length}, quoted"
            );
        }
    }
}

/// R2: bytes outside of ASCII are refused, quoted or bare.
#[tokio::test]
async fn high_bytes() {
    let server = counting(layer()).await;
    for (_, client) in clients(&server) {
        for byte in 0x80..=0xff_u8 {
            for key in [
                &[b'a', byte, b'b'][..],
                &[b'"', b'a', byte, b'b', b'"'],
                &[byte],
            ] {
                let answer = Answer::of(with_bytes(&client, key)).await;
                assert_eq!(kind(&answer), "key-invalid", "{byte:#04x}");
                assert_eq!(answer.status, StatusCode::BAD_REQUEST);
            }
        }
    }
}

/// R2: control bytes never reach a handler, whoever refuses them.
#[tokio::test]
async fn control_bytes() {
    let layer = layer();
    let server = counting(layer.clone()).await;
    for byte in (0..0x20).chain([0x7f]) {
        for key in [&[b'a', byte, b'b'][..], &[b'"', b'a', byte, b'b', b'"']] {
            assert_eq!(
                raw(&server, key).await,
                StatusCode::BAD_REQUEST,
                "{byte:#04x}"
            );
        }
    }
    assert!(layer.store().is_empty());
    assert_eq!(raw(&server, b"a").await, StatusCode::CREATED);
}

/// R2: a comma makes a list of a bare key, but not of a quoted one.
#[tokio::test]
async fn a_comma() {
    let server = counting(layer()).await;
    for (key, client) in clients(&server) {
        assert_eq!(
            kind_of(keyed(&client, "/", &format!("{key},b"))).await,
            "key-invalid"
        );
        assert_eq!(
            kind_of(keyed(&client, "/", &format!("{key}, b"))).await,
            "key-invalid"
        );
        assert_eq!(
            kind_of(keyed(&client, "/", &format!("\"{key},b\""))).await,
            "fresh"
        );
        assert_eq!(
            kind_of(keyed(&client, "/", &format!("\"{key}\", \"b\""))).await,
            "key-invalid"
        );
    }
}

/// R2: a strict server refuses bare keys, and says so.
#[tokio::test]
async fn strict_keys() {
    let server = counting(layer().strict_keys()).await;
    for (key, client) in clients(&server) {
        let answer = Answer::of(keyed(&client, "/", key)).await;
        assert_eq!(kind(&answer), "key-invalid");
        let detail = answer.json()["detail"].as_str().map(str::to_owned);
        assert!(detail.is_some_and(|detail| detail.contains("not a quoted string")));
        assert_eq!(
            kind_of(keyed(&client, "/", &format!("\"{key}\""))).await,
            "fresh"
        );
    }
}

/// R7: without its key a request is told so, and where the docs are; unless it is optional. One
/// that is there but malformed is refused all the same.
#[tokio::test]
async fn a_missing_key() {
    let required = counting(layer()).await;
    let optional = counting(layer().optional()).await;
    for ((_, required), (_, optional)) in clients(&required).into_iter().zip(clients(&optional)) {
        let answer = Answer::of(required.request(Method::POST, "/")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert_eq!(answer.problem(), "key-missing");
        let link = answer.headers["link"].to_str().expect("ASCII");
        assert!(
            link.starts_with("<https://docs.rs/") && link.contains("#key-missing"),
            "{link}"
        );

        let answer = Answer::of(optional.request(Method::POST, "/")).await;
        assert_eq!(kind(&answer), "fresh");
        assert_eq!(kind_of(keyed(&optional, "/", "a,b")).await, "key-invalid");
    }
}

/// R7: another header can carry the key, and the usual one then counts for nothing.
#[tokio::test]
async fn another_header() {
    let name = HeaderName::from_static("x-request-key");
    let server = counting(layer().key_header(name)).await;
    for (key, client) in clients(&server) {
        assert_eq!(kind_of(keyed(&client, "/", key)).await, "key-missing");
        for expected in ["fresh", "replay"] {
            let request = client
                .request(Method::POST, "/")
                .header("x-request-key", key);
            assert_eq!(kind_of(request).await, expected);
        }
    }
}

/// R4: POST and PATCH need a key; GET, HEAD and OPTIONS do not, and a method that was named does.
#[tokio::test]
async fn covered_methods() {
    let layer = layer().methods([Method::DELETE, Method::HEAD, Method::OPTIONS]);
    let named = axum::Router::new().route("/", axum::routing::any(|| async { "" }).layer(layer));
    let usual = axum::Router::new().route(
        "/",
        axum::routing::any(|| async { "" }).layer(crate::support::layer()),
    );
    let (named, usual) = (Server::start(named).await, Server::start(usual).await);
    let status = |server: &Server, method: &Method| {
        let request = Client::new(server).request(method.clone(), "/");
        async move { Answer::of(request).await.status }
    };
    for (method, usually, when_named) in [
        (Method::POST, true, false),
        (Method::PATCH, true, false),
        (Method::PUT, false, false),
        (Method::DELETE, false, true),
        (Method::GET, false, false),
        (Method::HEAD, false, false),
        (Method::OPTIONS, false, false),
    ] {
        let refused = |covered| {
            if covered {
                StatusCode::BAD_REQUEST
            } else {
                StatusCode::OK
            }
        };
        assert_eq!(status(&usual, &method).await, refused(usually), "{method}");
        assert_eq!(
            status(&named, &method).await,
            refused(when_named),
            "{method}"
        );
    }
}
