//! Answers, as handlers make them: what is committed is replayed as it was first answered, and
//! nothing else is.

#![no_main]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arbitrary::Arbitrary;
use bytes::Bytes;
use futures_util::stream;
use fuzz::{Answer, Line, block_on, headers, layer, request, status};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use libfuzzer_sys::fuzz_target;
use tower::{Layer as _, ServiceExt as _, service_fn};

/// More than this is not kept.
const LIMIT: usize = 128;

#[derive(Debug, Arbitrary)]
struct Made {
    status: u16,
    headers: Vec<Line>,
    frames: Vec<Vec<u8>>,
    trailers: Option<Vec<Line>>,
}

fuzz_target!(|made: Made| {
    let status = status(made.status);
    let head = headers(&made.headers);
    let trailers = made.trailers.as_deref().map(headers);
    let body = made.frames.concat();
    let runs = Arc::new(AtomicUsize::new(0));
    let make = {
        let (runs, head, trailers) = (Arc::clone(&runs), head.clone(), trailers.clone());
        move || {
            runs.fetch_add(1, Ordering::SeqCst);
            let data = made
                .frames
                .iter()
                .cloned()
                .map(|data| Frame::data(Bytes::from(data)));
            let frames = data.chain(trailers.clone().map(Frame::trailers));
            let frames: Vec<Result<_, Infallible>> = frames.map(Ok).collect();
            let mut response = Response::new(StreamBody::new(stream::iter(frames)));
            *response.status_mut() = status;
            *response.headers_mut() = head.clone();
            response
        }
    };
    let service =
        layer()
            .max_response_body(LIMIT)
            .layer(service_fn(move |_: Request<Full<Bytes>>| {
                std::future::ready(Ok::<_, Infallible>(make()))
            }));
    let send = || {
        let service = service.clone();
        block_on(async move { Answer::of(service.oneshot(request(Bytes::new())).await).await })
    };
    let (first, second) = (send(), send());

    // The first client gets what the handler made, but for a mark that it faked.
    let mut unmarked = head.clone();
    unmarked.remove("idempotent-replayed");
    assert_eq!((first.status, &first.headers), (status, &unmarked));
    assert_eq!(first.body, body);
    let some = |trailers: &Option<HeaderMap>| trailers.clone().filter(|lines| !lines.is_empty());
    assert_eq!(some(&first.trailers), some(&trailers));

    let failed = |lines: &HeaderMap| lines.get("grpc-status").is_some_and(|status| status != "0");
    let event_stream = head.get("content-type").is_some_and(|value| {
        let value = value.as_bytes().to_ascii_lowercase();
        value.starts_with(b"text/event-stream")
    });
    let kept = body.len() <= LIMIT && !event_stream;
    let success =
        status.is_success() && !failed(&head) && !(kept && trailers.as_ref().is_some_and(failed));
    if !success {
        assert_eq!((runs.load(Ordering::SeqCst), &second), (2, &first));
        return;
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "a success runs once");
    if !kept {
        assert_eq!(second.status, StatusCode::GONE);
        return;
    }
    assert!(second.is_replay());
    assert_eq!(second.status, status);
    let empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
    assert_eq!(second.body, if empty { Vec::new() } else { body });
    for name in second
        .headers
        .keys()
        .filter(|name| *name != "idempotent-replayed")
    {
        let lines =
            |headers: &HeaderMap| -> Vec<_> { headers.get_all(name).iter().cloned().collect() };
        assert_eq!(lines(&second.headers), lines(&first.headers), "{name}");
        let private = [
            "set-cookie",
            "connection",
            "date",
            "transfer-encoding",
            "content-length",
        ];
        assert!(!private.contains(&name.as_str()), "{name} is never kept");
    }
    let named = |name: &str| {
        let lines = head.get_all("connection").iter();
        lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','))
            .any(|word| word.trim().eq_ignore_ascii_case(name))
    };
    // Where the connection names nothing odd, what belongs to the result is there.
    if !head.contains_key("connection") {
        for name in ["content-type", "location", "etag", "link", "vary"] {
            assert_eq!(
                second.headers.contains_key(name),
                head.contains_key(name),
                "{name}"
            );
        }
    }
    for name in second.headers.keys() {
        assert!(!named(name.as_str()), "{name} belongs to the connection");
    }
});
