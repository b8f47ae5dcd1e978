//! The layer.

use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use tower_idempotency::{IdempotencyLayer, MemoryStore, Owner, SqlxStore, Store, Tx};

use super::{created, failed, waited};
use crate::database::BenchDb;
use crate::post::Draft;

/// As many as a figure has at once.
const IN_FLIGHT: usize = 20_000;

/// The application over a database.
pub(crate) fn layered<DB: BenchDb>(store: SqlxStore<DB>) -> Router {
    let layer = layer(store);
    Router::new().route("/posts", post(write::<DB>).layer(layer))
}

fn layer<S: Store>(store: S) -> IdempotencyLayer<S> {
    IdempotencyLayer::with_store(store)
        .operation("publish")
        .max_in_flight(IN_FLIGHT)
}

async fn write<DB: BenchDb>(
    tx: Tx<DB>,
    owner: Owner,
    headers: HeaderMap,
    Json(draft): Json<Draft>,
) -> Result<Response, Response> {
    waited(&headers).await;
    let mut conn = tx
        .acquire()
        .await
        .map_err(axum::response::IntoResponse::into_response)?;
    let id = DB::insert(&mut conn, owner.as_str(), &draft)
        .await
        .map_err(failed)?;
    Ok(created(id, &draft).into_response())
}

/// An application that writes nothing, with or without the layer on a store in memory.
pub fn in_memory(layered: bool) -> Router {
    let handler = post(async |headers: HeaderMap, Json(draft): Json<Draft>| {
        waited(&headers).await;
        created(1, &draft)
    });
    let handler = if layered {
        handler.layer(layer(MemoryStore::new()))
    } else {
        handler
    };
    super::authenticated(Router::new().route("/posts", handler))
}
