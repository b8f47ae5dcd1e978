//! Memory stays flat. A process of its own, so that nobody else's memory is in the way.
//!
//! `MEMORY_TEST_REQUESTS=100000 cargo test -p end-to-end --test memory` sends more than the few
//! thousand requests of every day.

#![cfg(target_os = "linux")]

use std::convert::Infallible;
use std::fs;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::Mutex;
use tower::ServiceExt as _;
use tower_idempotency::{IdempotencyLayer, MemoryStore, Owner, Store as _};

/// The tests of this file, one after the other.
static ALONE: Mutex<()> = Mutex::const_new(());

/// What the allocator may take and not give back.
const SLACK_KIB: u64 = 4 << 10;

const PIECE: &[u8] = &[7; 64 << 10];
const OTHER: &[u8] = &[8; 64 << 10];

/// How many requests to send, at least.
fn requests(usually: usize) -> usize {
    let set = std::env::var("MEMORY_TEST_REQUESTS").ok();
    set.map_or(usually, |set| set.parse().expect("a number"))
}

/// The memory of this process that is in RAM.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    kib.expect("VmRSS in kB")
}

/// A service, and the store that is emptied now and then: what grows is not the records.
struct Served {
    app: Router,
    store: MemoryStore,
    owner: Owner,
}

impl Served {
    fn new() -> Self {
        let (store, owner) = (MemoryStore::new(), Owner::new("ann").expect("an owner"));
        let handler =
            |body: Bytes| async move { (StatusCode::CREATED, body.slice(..body.len().min(1024))) };
        let layer = IdempotencyLayer::with_store(store.clone());
        let app = Router::new()
            .route("/", post(handler).layer(layer))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .layer(Extension(owner.clone()));
        Self { app, store, owner }
    }

    /// Sends a body in pieces, each of which is borrowed, so that what is copied is the layer's.
    async fn send(&self, key: &str, pieces: &[&'static [u8]], breaks_off: bool) -> StatusCode {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| Ok(Bytes::from_static(piece)))
            .collect();
        let end = breaks_off.then(|| Err(std::io::Error::other("broken off")));
        let body = Body::from_stream(stream::iter(pieces.into_iter().chain(end)));
        let request = Request::post("/").header("idempotency-key", key).body(body);
        let request = request.expect("a request");
        let answer = self.app.clone().oneshot(request).await;
        let answer = answer.unwrap_or_else(|never: Infallible| match never {});
        let (parts, body) = answer.into_parts();
        axum::body::to_bytes(body, usize::MAX)
            .await
            .expect("a body");
        parts.status
    }

    async fn forget(&self) {
        self.store.erase_owner(&self.owner).await.expect("memory");
    }
}

/// Runs rounds until so many requests are sent, and compares the memory after the first tenth with
/// that at the end.
async fn assert_flat(requests: usize, mut round: impl AsyncFnMut(usize) -> usize) {
    let (mut sent, mut warm) = (0, None);
    for number in 0.. {
        sent += round(number).await;
        if warm.is_none() && sent >= requests / 10 {
            warm = Some(resident_kib());
        }
        if sent >= requests {
            break;
        }
    }
    let (warm, now) = (warm.expect("after a tenth"), resident_kib());
    println!("{sent} requests: {warm} KiB after a tenth, {now} KiB at the end");
    assert!(now <= warm + SLACK_KIB, "from {warm} KiB to {now} KiB");
}

/// R12: memory stays flat over requests with bodies of 1 MiB, whether they run, are replayed, or are
/// refused for another body, one that is too large, or one that breaks off.
#[tokio::test]
async fn large_bodies_leave_nothing() {
    let _alone = ALONE.lock().await;
    let served = Served::new();
    assert_flat(requests(2_000), async |round| {
        let key = round.to_string();
        let mib = [PIECE; 16];
        assert_eq!(served.send(&key, &mib, false).await, StatusCode::CREATED);
        assert_eq!(served.send(&key, &mib, false).await, StatusCode::CREATED);
        let other = served.send(&key, &[OTHER; 16], false).await;
        assert_eq!(other, StatusCode::CONFLICT);
        let large = served.send("large", &[PIECE; 33], false).await;
        assert_eq!(large, StatusCode::PAYLOAD_TOO_LARGE);
        let broken = served.send("broken", &mib, true).await;
        assert_eq!(broken, StatusCode::BAD_REQUEST);
        served.forget().await;
        5
    })
    .await;
}

/// R50: nothing of the layer's grows with the number of keys that it has seen.
#[tokio::test]
async fn keys_leave_nothing() {
    let _alone = ALONE.lock().await;
    let served = Served::new();
    assert_flat(requests(100_000), async |round| {
        for key in 0..100 {
            let key = format!("{round}-{key}");
            assert_eq!(served.send(&key, &[b"x"], false).await, StatusCode::CREATED);
        }
        served.forget().await;
        100
    })
    .await;
}
