//! Request bodies at every edge of a buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use end_to_end::{Answer, Server, World, on_every_database};
use http_body::Frame;
use http_body_util::StreamBody;

use crate::support::{Broken, clients, keyed};

const LIMIT: usize = 200 << 10;

/// Bytes that repeat only after 251 of them.
fn body(length: usize) -> Vec<u8> {
    (0..=250_u8).cycle().take(length).collect()
}

on_every_database! {
    /// R12, R20: bodies of every size up to the limit arrive whole and are told apart by their last
    /// byte; one more byte is refused.
    async fn every_size<D>() {
        let world = World::<D>::new().await;
        let runs = Arc::new(AtomicUsize::new(0));
        let ran = Arc::clone(&runs);
        let echo = move |body: Bytes| {
            ran.fetch_add(1, Ordering::SeqCst);
            async move { body }
        };
        let layer = world.layer().max_request_body(LIMIT as u64);
        let server = Server::start(Router::new().route("/", post(echo).layer(layer))).await;
        let kib = |kib: usize| [(kib << 10) - 1, kib << 10, (kib << 10) + 1];
        let sizes = [[0, 1, LIMIT], kib(16), kib(64)].concat();
        for (protocol, client) in clients(&server) {
            for size in &sizes {
                let key = format!("{protocol}-{size}");
                let whole = body(*size);
                let before = runs.load(Ordering::SeqCst);
                let first = Answer::of(keyed(&client, "/", &key).body(whole.clone())).await;
                assert_eq!(first.status, StatusCode::OK, "{size}");
                assert_eq!(first.body, whole, "{size}");

                let half = size / 2;
                let frames = [&whole[..half], &whole[half..]]
                    .map(|part| Ok::<_, Broken>(Frame::data(Bytes::copy_from_slice(part))));
                let framed = reqwest::Body::wrap(StreamBody::new(futures_util::stream::iter(frames)));
                let second = Answer::of(keyed(&client, "/", &key).body(framed)).await;
                assert!(second.is_replay(), "{size}");
                assert_eq!(second.body, whole, "{size}");
                if let Some((last, rest)) = whole.split_last() {
                    let other = [rest, &[!last]].concat();
                    let other = Answer::of(keyed(&client, "/", &key).body(other)).await;
                    assert_eq!(other.problem(), "key-reused", "{size}");
                }
                assert_eq!(runs.load(Ordering::SeqCst), before + 1, "{size}");
            }
            let larger = Answer::of(keyed(&client, "/", "larger").body(body(LIMIT + 1))).await;
            assert_eq!(larger.status, StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(larger.problem(), "request-too-large");
        }
        assert_eq!(world.records("larger", "claimed").await + world.records("larger", "completed").await, 0);
        world.end().await;
    }
}
