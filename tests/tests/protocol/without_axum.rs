//! A service of hyper and tower alone, under the layer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_idempotency::{IdempotencyLayer, MemoryStore, MemoryTx, Owner};

/// The body of a request: as it comes in, or as the layer has read it.
struct Received(UnsyncBoxBody<Bytes, hyper::Error>);

impl From<Bytes> for Received {
    fn from(bytes: Bytes) -> Self {
        Self(
            Full::new(bytes)
                .map_err(|never| match never {})
                .boxed_unsync(),
        )
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.size_hint()
    }
}

/// Echoes the body, if it has a transaction.
async fn echo(request: Request<Received>) -> Result<Response<Full<Bytes>>, Infallible> {
    let lent = request.extensions().get::<MemoryTx>().is_some();
    let body = request
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    let mut response = Response::new(Full::new(body.unwrap_or_default()));
    *response.status_mut() = if lent {
        StatusCode::CREATED
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    Ok(response)
}

async fn serve(layer: IdempotencyLayer<MemoryStore>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let service = layer
        .layer(service_fn(echo))
        .map_request(|request: Request<Incoming>| {
            let mut request = request.map(|body| Received(body.boxed_unsync()));
            request.extensions_mut().insert(Owner::shared());
            request
        });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let _ = Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

/// R50, R51, R52: without axum a request runs once too, on both versions of HTTP: a name is all
/// that its operation needs.
#[tokio::test]
async fn a_service_of_hyper() {
    let address = serve(
        IdempotencyLayer::with_store(MemoryStore::new())
            .operation("echo")
            .max_request_body(8),
    )
    .await;
    for http2 in [false, true] {
        let client = reqwest::Client::builder().no_proxy();
        let client = if http2 {
            client.http2_prior_knowledge()
        } else {
            client
        };
        let client = client.build().expect("a client");
        let send = async |body: &'static str| {
            let key = format!("k-{http2}");
            let request = client
                .post(format!("http://{address}/"))
                .header("idempotency-key", key)
                .body(body);
            let response = request.send().await.expect("an answer");
            let replayed = response.headers().contains_key("idempotent-replayed");
            (
                response.status(),
                replayed,
                response.text().await.expect("text"),
            )
        };
        assert_eq!(
            send("body").await,
            (StatusCode::CREATED, false, "body".to_owned())
        );
        assert_eq!(
            send("body").await,
            (StatusCode::CREATED, true, "body".to_owned())
        );
        assert_eq!(send("other").await.0, StatusCode::CONFLICT);
        assert_eq!(send("too large").await.0, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
