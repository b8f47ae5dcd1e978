//! Handlers without any protocol.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use sqlx::Pool;
use tower_idempotency::Owner;

use super::{created, failed, waited};
use crate::database::BenchDb;
use crate::post::Draft;

/// One INSERT in a transaction.
pub(super) fn writing<DB: BenchDb>(pool: Pool<DB>) -> Router {
    Router::new()
        .route("/posts", post(write::<DB>))
        .with_state(pool)
}

async fn write<DB: BenchDb>(
    State(pool): State<Pool<DB>>,
    owner: Owner,
    headers: HeaderMap,
    Json(draft): Json<Draft>,
) -> Result<Response, Response> {
    waited(&headers).await;
    let mut transaction = pool.begin().await.map_err(failed)?;
    let id = DB::insert(&mut transaction, owner.as_str(), &draft)
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    Ok(created(id, &draft).into_response())
}

/// One row by its primary key, which is the key of the request.
pub(super) fn reading<DB: BenchDb>(pool: Pool<DB>) -> Router {
    Router::new()
        .route("/posts", post(read::<DB>))
        .with_state(pool)
}

async fn read<DB: BenchDb>(
    State(pool): State<Pool<DB>>,
    headers: HeaderMap,
    _: Bytes,
) -> Result<Response, Response> {
    let key = headers
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok())
        .unwrap_or_default();
    let mut conn = pool.acquire().await.map_err(failed)?;
    let body = DB::kept(&mut conn, key).await.map_err(failed)?;
    let body = body.ok_or_else(|| StatusCode::NOT_FOUND.into_response())?;
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((StatusCode::CREATED, json, body).into_response())
}
