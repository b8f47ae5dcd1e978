//! gRPC: services of tonic, whose failures are 200 too.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Bytes;
use bytes::{Buf as _, BufMut as _};
use end_to_end::{Client, Server};
use http::HeaderMap;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tower::service_fn;
use tower_idempotency::{IdempotencyLayer, MemoryStore, MemoryTx, Operation};

use crate::support::with_trailers;

/// Messages that are bytes: a real service has its codec from a schema.
#[derive(Debug, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut message = vec![0; from.remaining()];
        from.copy_to_slice(&mut message);
        Ok(Some(message))
    }
}

/// What the service has done.
#[derive(Debug, Default)]
struct Done {
    runs: AtomicUsize,
    effects: AtomicUsize,
}

/// Writes an effect through the transaction of its request, and answers as it was asked to.
#[derive(Debug, Clone)]
struct Doing {
    store: MemoryStore,
    done: Arc<Done>,
}

impl Doing {
    /// The message that it was asked with, and the number of the run.
    async fn act(self, request: Request<Vec<u8>>) -> Result<(Vec<u8>, Vec<u8>), Status> {
        let run = self.done.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let tx = request.extensions().get::<MemoryTx>().cloned();
        let tx = tx.ok_or_else(|| Status::internal("no layer"))?;
        let mut writes = tx
            .acquire(&self.store)
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        writes.on_commit(move || {
            self.done.effects.fetch_add(1, Ordering::SeqCst);
        });
        Ok((request.into_inner(), run.to_string().into_bytes()))
    }
}

impl NamedService for Doing {
    const NAME: &'static str = "test.Doing";
}

impl tower::Service<http::Request<tonic::body::Body>> for Doing {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let doing = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(Plain);
            if request.uri().path().ends_with("/Stream") {
                let stream = service_fn(move |request| {
                    let doing = doing.clone();
                    async move {
                        let (asked, run) = doing.act(request).await?;
                        let last = if asked == b"fail" {
                            Err(Status::not_found("no such thing"))
                        } else {
                            Ok(b"end".to_vec())
                        };
                        Ok::<_, Status>(Response::new(futures_util::stream::iter([Ok(run), last])))
                    }
                });
                return Ok(grpc.server_streaming(stream, request).await);
            }
            let unary = service_fn(move |request| {
                let doing = doing.clone();
                async move {
                    let (asked, run) = doing.act(request).await?;
                    if asked == b"fail" {
                        return Err(Status::not_found("no such thing"));
                    }
                    Ok(Response::new(run))
                }
            });
            Ok(grpc.unary(unary, request).await)
        })
    }
}

struct Served {
    server: Server,
    done: Arc<Done>,
    layer: IdempotencyLayer<MemoryStore>,
}

async fn serve() -> Served {
    let layer = IdempotencyLayer::with_store(MemoryStore::new())
        .operation_with(|parts| Operation::new(parts.uri.path()).ok());
    let done = Arc::new(Done::default());
    let doing = Doing {
        store: layer.store().clone(),
        done: Arc::clone(&done),
    };
    let app = Routes::new(doing).into_axum_router().layer(layer.clone());
    Served {
        server: Server::start(app).await,
        done,
        layer,
    }
}

struct Called {
    replayed: bool,
    head: HeaderMap,
    messages: Vec<Bytes>,
    trailers: Option<HeaderMap>,
}

/// Calls a method with a message.
async fn call(served: &Served, method: &str, key: &str, message: &str) -> Called {
    let mut frame = vec![0];
    frame.put_u32(u32::try_from(message.len()).expect("short"));
    frame.put_slice(message.as_bytes());
    let request = Client::http2(&served.server)
        .request(http::Method::POST, &format!("/test.Doing/{method}"))
        .header("idempotency-key", key)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(frame);
    let (head, mut body, trailers) = with_trailers(request).await;
    assert_eq!(head.status, http::StatusCode::OK);
    assert_eq!(head.headers["content-type"], "application/grpc");
    let mut messages = Vec::new();
    while !body.is_empty() {
        assert_eq!(body.get_u8(), 0, "not compressed");
        let length = body.get_u32() as usize;
        messages.push(body.split_to(length));
    }
    let replayed = head.headers.contains_key("idempotent-replayed");
    Called {
        replayed,
        head: head.headers,
        messages,
        trailers,
    }
}

/// R45, R51: a call that ends with `grpc-status: 0` in its trailers is kept, and replayed with them.
#[tokio::test]
async fn a_success_is_replayed_with_its_trailers() {
    let served = serve().await;
    for (method, messages) in [("Unary", &["1"][..]), ("Stream", &["2", "end"][..])] {
        for replayed in [false, true, true] {
            let called = call(&served, method, "k", "do").await;
            assert_eq!(called.replayed, replayed, "{method}");
            assert_eq!(called.messages, messages, "{method}");
            assert_eq!(called.trailers.expect("trailers")["grpc-status"], "0");
        }
    }
    assert_eq!(served.done.runs.load(Ordering::SeqCst), 2);
    assert_eq!(served.done.effects.load(Ordering::SeqCst), 2);
}

/// R45, R54: a `grpc-status` other than 0, in the headers alone or in the trailers after a message,
/// is a failure: rolled back and freed, though the status is 200.
#[tokio::test]
async fn a_failure_is_rolled_back() {
    let served = serve().await;
    for (run, method) in [(1, "Unary"), (3, "Stream")] {
        for run in [run, run + 1] {
            let called = call(&served, method, "k", "fail").await;
            assert!(!called.replayed);
            let status = if method == "Unary" {
                Some(called.head)
            } else {
                called.trailers
            };
            assert_eq!(status.expect("its place")["grpc-status"], "5", "{method}");
            assert_eq!(
                served.done.runs.load(Ordering::SeqCst),
                run,
                "it runs again"
            );
        }
        assert!(served.layer.store().is_empty(), "freed");
    }
    assert_eq!(served.done.effects.load(Ordering::SeqCst), 0);
    // The same key, with what succeeds.
    assert!(!call(&served, "Unary", "k", "do").await.replayed);
    assert_eq!(served.done.effects.load(Ordering::SeqCst), 1);
}

/// R52: another message with the same key is refused, as anywhere.
#[tokio::test]
async fn another_message_is_refused() {
    let served = serve().await;
    assert!(!call(&served, "Unary", "k", "do").await.replayed);
    let request = Client::http2(&served.server)
        .request(http::Method::POST, "/test.Doing/Unary")
        .header("idempotency-key", "k")
        .header("content-type", "application/grpc")
        .body(vec![0, 0, 0, 0, 1, b'x']);
    assert_eq!(
        end_to_end::Answer::of(request).await.problem(),
        "key-reused"
    );
}
