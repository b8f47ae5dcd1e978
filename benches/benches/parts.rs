//! The parts of a request that need no database: `cargo bench --package benches`.

use std::hint::black_box;

use axum::body::Body;
use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use sha2::{Digest as _, Sha256};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer as _, ServiceExt as _};
use tower_idempotency::{
    Claim, Fingerprint, IDEMPOTENCY_KEY, IdempotencyKey, IdempotencyLayer, KeyGrammar, Lease,
    MemoryStore, Operation, Owner, RecordId, Store as _, StoredResponse,
};

const KEY: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";

fn key(criterion: &mut Criterion) {
    let mut headers = HeaderMap::new();
    for (name, value) in [("bare", KEY.to_owned()), ("quoted", format!("\"{KEY}\""))] {
        headers.insert(
            IDEMPOTENCY_KEY,
            HeaderValue::from_str(&value).expect("a header"),
        );
        criterion.bench_function(&format!("key/{name}"), |bencher| {
            bencher.iter(|| {
                IdempotencyKey::from_headers(
                    black_box(&headers),
                    &IDEMPOTENCY_KEY,
                    KeyGrammar::Compatible,
                )
            });
        });
    }
}

fn fingerprint(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fingerprint");
    for size in [1024, 256 * 1024] {
        let body = vec![b'x'; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(format!("{size} bytes"), |bencher| {
            bencher.iter(|| {
                Fingerprint::builder(&Method::POST)
                    .path("/posts")
                    .query(None)
                    .content_header(&http::header::CONTENT_TYPE, b"application/json")
                    .body_sha256(Sha256::digest(black_box(&body)).into())
                    .finish()
            });
        });
    }
    group.finish();
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn claim() -> Claim {
    let key = format!("{:032x}", fastrand::u128(..));
    let id = RecordId {
        owner: Owner::new("account-7f3a").expect("an owner"),
        operation: Operation::from_static("publish"),
        key: IdempotencyKey::from_text(&key).expect("a key"),
    };
    Claim::new(id, Fingerprint::builder(&Method::POST).finish())
}

fn memory_store(criterion: &mut Criterion) {
    let (runtime, store) = (runtime(), MemoryStore::new());
    let response = StoredResponse::kept(StatusCode::CREATED, "", Bytes::from_static(b"{}"));
    criterion.bench_function("memory store/claim and complete", |bencher| {
        bencher.to_async(&runtime).iter(async || {
            let claim = claim();
            store.claim(&claim).await.expect("a new key");
            let tx = store.lend(Lease::claimed(claim.clone()));
            store.complete(&tx, &claim, &response).await
        });
    });
    let known = claim();
    runtime.block_on(async {
        store.claim(&known).await.expect("a new key");
        let tx = store.lend(Lease::claimed(known.clone()));
        store.complete(&tx, &known, &response).await;
    });
    criterion.bench_function("memory store/replay", |bencher| {
        bencher
            .to_async(&runtime)
            .iter(async || store.claim(&known).await);
    });
}

/// What a request costs beside its handler: most of it, for a body in pieces, is its capture.
fn capture(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("capture");
    let runtime = runtime();
    for size in [1024, 256 * 1024] {
        let body = Bytes::from(vec![b'x'; size]);
        let handler = tower::service_fn(move |_: Request<Body>| {
            let body = body.clone();
            async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(body))) }
        });
        let layer = IdempotencyLayer::with_store(MemoryStore::new()).operation("publish");
        let service = layer.layer(handler);
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(format!("{size} bytes"), |bencher| {
            bencher.to_async(&runtime).iter(|| {
                let mut request = Request::post("/posts")
                    .header(IDEMPOTENCY_KEY, format!("{:032x}", fastrand::u128(..)))
                    .body(Body::empty())
                    .expect("a request");
                request.extensions_mut().insert(Owner::shared());
                service.clone().oneshot(request)
            });
        });
    }
    group.finish();
}

criterion_group!(parts, key, fingerprint, memory_store, capture);
criterion_main!(parts);
