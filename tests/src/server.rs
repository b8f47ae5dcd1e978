//! A server on a real socket.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_idempotency::{IdempotencyLayer, Owner, SqlxStore, Tx};

use crate::TestDb;

/// A running server. Stopped when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves an application, with [`authenticate`] around it.
    ///
    /// # Panics
    ///
    /// There is no free port.
    pub async fn start(app: Router) -> Self {
        let app = app.layer(from_fn(authenticate));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("the server runs");
        });
        Self { address, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes the owner from the header `x-owner`. None: the request goes on without.
pub async fn authenticate(mut request: Request, next: Next) -> Response {
    let owner = request
        .headers()
        .get("x-owner")
        .and_then(|value| value.to_str().ok());
    if let Some(owner) = owner.and_then(|owner| Owner::new(owner).ok()) {
        request.extensions_mut().insert(owner);
    }
    next.run(request).await
}

/// What a client asks the handler to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Act {
    /// The effect to write.
    pub note: String,
    /// How long to wait before writing.
    #[serde(default)]
    pub wait_ms: u64,
    /// What to answer after writing, where it is not 201.
    #[serde(default)]
    pub answer: Option<u16>,
    /// Whether to panic after writing.
    #[serde(default)]
    pub panic: bool,
}

/// Writes one effect, and then ends as it was asked to.
///
/// # Errors
///
/// When the transaction or the database fails.
///
/// # Panics
///
/// When it was asked to.
pub async fn act<D: TestDb>(tx: Tx<D>, Json(act): Json<Act>) -> Result<Response, Response> {
    tokio::time::sleep(Duration::from_millis(act.wait_ms)).await;
    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
    D::insert(&mut conn, &act.note)
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
    assert!(!act.panic, "as it was asked to");
    let status = act
        .answer
        .map_or(Ok(StatusCode::CREATED), StatusCode::from_u16);
    let location = [(header::LOCATION, format!("/effects/{}", act.note))];
    Ok((status.expect("a status"), location, Json(act)).into_response())
}

/// `POST /effects` and `POST /others`, each with a layer that names its operation.
pub fn effects_app<D: TestDb>(layer: &IdempotencyLayer<SqlxStore<D>>) -> Router {
    let route = |operation| post(act::<D>).layer(layer.clone().operation(operation));
    Router::new()
        .route("/effects", route("effects"))
        .route("/others", route("others"))
}
