//! What the targets have in common: a layer over a store in memory, and requests with bytes in them.

use std::convert::Infallible;
use std::future::Future;

use arbitrary::Arbitrary;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tokio::runtime::Runtime;
use tower_idempotency_core::{IDEMPOTENCY_KEY, IdempotencyLayer, MemoryStore, Owner};

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be built");
}

/// Runs a future to its end, in the one runtime of this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// A layer over a fresh store.
pub fn layer() -> IdempotencyLayer<MemoryStore> {
    IdempotencyLayer::with_store(MemoryStore::new()).operation("fuzz")
}

/// Whose keys they all are.
pub fn owner() -> Owner {
    Owner::new("ann").expect("an owner")
}

/// Some status, a success as often as not.
pub fn status(number: u16) -> StatusCode {
    let status = match number % 2 {
        0 => 200 + number / 2 % 100,
        _ => 100 + number / 2 % 900,
    };
    StatusCode::from_u16(status).expect("three digits")
}

/// One field line. Names that mean something to the layer come as often as all others.
#[derive(Debug, Clone, Arbitrary)]
pub struct Line {
    name: Name,
    value: Vec<u8>,
}

#[derive(Debug, Clone, Arbitrary)]
enum Name {
    Known(u8),
    Other(String),
}

const KNOWN: &[&str] = &[
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-location",
    "content-type",
    "date",
    "etag",
    "grpc-message",
    "grpc-status",
    "idempotency-key",
    "idempotent-replayed",
    "keep-alive",
    "link",
    "location",
    "proxy-authenticate",
    "retry-after",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "x-custom",
];

/// The lines that HTTP can carry.
pub fn headers(lines: &[Line]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for Line { name, value } in lines {
        let name = match name {
            Name::Known(number) => KNOWN[usize::from(*number) % KNOWN.len()],
            Name::Other(name) => name,
        };
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    headers
}

/// A POST to `/` with the key `k`, as authentication hands it on.
pub fn request(body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    request
        .headers_mut()
        .insert(IDEMPOTENCY_KEY, HeaderValue::from_static("k"));
    request.extensions_mut().insert(owner());
    request
}

/// A response that has been read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// Reads a response.
    pub async fn of<B>(response: Result<Response<B>, Infallible>) -> Self
    where
        B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
    {
        let (head, body) = response.unwrap_or_else(|never| match never {}).into_parts();
        let collected = body
            .collect()
            .await
            .expect("a body that does not break off");
        Self {
            status: head.status,
            headers: head.headers,
            trailers: collected.trailers().cloned(),
            body: collected.to_bytes(),
        }
    }

    /// Whether it is marked as a replay.
    pub fn is_replay(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|mark| mark == "true")
    }
}
