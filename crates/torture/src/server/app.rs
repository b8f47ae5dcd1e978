//! The routes, and handlers that do as they are told.

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tower_idempotency::{
    IDEMPOTENCY_KEY, IdempotencyLayer, Operation, Owner, ResourceRef, SqlxStore, TombstoneResource,
    Tx, TxError,
};
use uuid::Uuid;

use super::points::{Mine, Point};
use super::store::Mined;
use crate::effects::{Effects, NewEffect};

const MAKE: Operation = Operation::from_static("make");
const REMOVE: Operation = Operation::from_static("remove");

/// Carries a [`Whim`]. No part of the fingerprint, so that each retry may have another.
pub(crate) const WHIM: HeaderName = HeaderName::from_static("x-whim");

/// What is made. The whole of it counts in the fingerprint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Draft {
    pub(crate) key: String,
    pub(crate) text: String,
    /// How long COMMIT takes, where a database can be made to wait in it.
    pub(crate) linger_ms: i64,
}

/// How a handler is to behave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Whim {
    /// How long it thinks before it begins its transaction.
    pub(crate) think_ms: u64,
    /// How long it rests between its two writes.
    pub(crate) rest_ms: u64,
    pub(crate) end: End,
}

/// How a handler ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    #[default]
    Success,
    /// 422, before anything was written.
    Refusal,
    /// 500, after all was written.
    Failure,
    /// A panic between the writes.
    Panic,
}

#[derive(Clone)]
struct Site {
    mine: Mine,
    owner: Owner,
}

pub(crate) fn router<D: Effects>(
    layer: &IdempotencyLayer<Mined<SqlxStore<D>>>,
    owner: Owner,
    mine: Mine,
) -> Router {
    let removing = layer.clone().operation(REMOVE).methods([Method::DELETE]);
    let site = Site { mine, owner };
    Router::new()
        .route(
            "/effects",
            post(make::<D>).layer(layer.clone().operation(MAKE)),
        )
        .route("/effects/{id}", delete(remove::<D>).layer(removing))
        .layer(from_fn_with_state(site.clone(), enter))
        .layer(from_fn(read_whim))
        .with_state(site)
}

async fn enter(State(site): State<Site>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(site.owner);
    let answer = next.run(request).await;
    if answer.status().is_success() {
        site.mine.pass(Point::Answering);
    }
    answer
}

async fn read_whim(mut request: Request, next: Next) -> Response {
    let whim = request.headers().get(WHIM).map(HeaderValue::as_bytes);
    match whim.map_or_else(|| Ok(Whim::default()), serde_json::from_slice) {
        Ok(whim) => {
            request.extensions_mut().insert(whim);
            next.run(request).await
        }
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

#[derive(Serialize)]
struct Made {
    id: String,
    key: String,
    /// Another run would answer with another one.
    server: u32,
}

async fn make<D: Effects>(
    State(site): State<Site>,
    axum::Extension(whim): axum::Extension<Whim>,
    tx: Tx<D>,
    Json(draft): Json<Draft>,
) -> Result<Response, AppError> {
    tokio::time::sleep(Duration::from_millis(whim.think_ms)).await;
    if whim.end == End::Refusal {
        return Ok(StatusCode::UNPROCESSABLE_ENTITY.into_response());
    }
    let effect = NewEffect {
        id: Uuid::new_v4().to_string(),
        key: draft.key,
        body: draft.text,
        linger_ms: draft.linger_ms,
    };
    let mut conn = tx.acquire().await?;
    D::insert(&mut conn, &effect).await?;
    site.mine.pass(Point::Written);
    tokio::time::sleep(Duration::from_millis(whim.rest_ms)).await;
    assert!(whim.end != End::Panic, "as it was told");
    D::count(&mut conn, &effect.key).await?;
    drop(conn);
    tx.made(ResourceRef::new(&effect.id));
    if whim.end == End::Failure {
        return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
    }
    let headers = [
        (header::LOCATION, format!("/effects/{}", effect.id)),
        (header::ETAG, format!("\"{}\"", Uuid::new_v4())),
    ];
    let made = Made {
        id: effect.id,
        key: effect.key,
        server: std::process::id(),
    };
    Ok((StatusCode::CREATED, headers, Json(made)).into_response())
}

async fn remove<D: Effects>(
    State(site): State<Site>,
    axum::Extension(whim): axum::Extension<Whim>,
    headers: HeaderMap,
    owner: Owner,
    tx: Tx<D>,
    Path(id): Path<String>,
) -> Result<StatusCode, AppError> {
    let key = headers.get(IDEMPOTENCY_KEY);
    let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(whim.think_ms)).await;
    let mut conn = tx.acquire().await?;
    if !D::bury(&mut conn, &id, key).await? {
        return Ok(StatusCode::NOT_FOUND);
    }
    site.mine.pass(Point::Written);
    tokio::time::sleep(Duration::from_millis(whim.rest_ms)).await;
    drop(conn);
    let buried = tx
        .tombstone_resource(TombstoneResource {
            owner,
            operation: MAKE,
            resource_ref: ResourceRef::new(id),
        })
        .await?;
    Ok(match buried {
        1 => StatusCode::NO_CONTENT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    })
}

/// Never the database's own words.
enum AppError {
    Database(sqlx::Error),
    Tx(TxError),
}

impl From<sqlx::Error> for AppError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<TxError> for AppError {
    fn from(error: TxError) -> Self {
        Self::Tx(error)
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        match self {
            Self::Database(error) => {
                tracing::info!(%error, "handler's statement");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Self::Tx(error) => error.into_response(),
        }
    }
}
