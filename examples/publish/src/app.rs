//! The routes.

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sqlx::Pool;
use tower_idempotency::{
    IdempotencyLayer, Operation, Owner, ResourceRef, SqlxStore, TombstoneResource, Tx, TxError,
};
use uuid::Uuid;

use crate::posts::{Post, Posts};

const PUBLISH: Operation = Operation::from_static("publish");
const REMOVE: Operation = Operation::from_static("remove");

/// Stands in for a session, a token or whatever else an authentication layer would check.
const DEMO_USER: HeaderName = HeaderName::from_static("x-demo-user");

/// The longest that moderation may be simulated.
const MAX_DELAY_MS: u64 = 60_000;

pub(crate) fn router<D: Posts>(
    pool: Pool<D>,
    idempotency: &IdempotencyLayer<SqlxStore<D>>,
) -> Router {
    let publishing = idempotency.clone().operation(PUBLISH);
    let removing = idempotency
        .clone()
        .operation(REMOVE)
        .methods([Method::DELETE])
        .optional();
    Router::new()
        .route(
            "/posts",
            post(publish::<D>).layer(publishing).get(list::<D>),
        )
        .route(
            "/posts/{id}",
            delete(remove::<D>).layer(removing).merge(get(read::<D>)),
        )
        .layer(from_fn(authenticate))
        .with_state(pool)
}

/// NOT an authentication: it believes whatever the header says.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let user = request
        .headers()
        .get(DEMO_USER)
        .and_then(|value| value.to_str().ok());
    let Some(owner) = user.and_then(|user| Owner::new(user).ok()) else {
        return (
            StatusCode::UNAUTHORIZED,
            "say who you are in the header X-Demo-User\n",
        )
            .into_response();
    };
    request.extensions_mut().insert(owner);
    next.run(request).await
}

#[derive(Deserialize)]
pub(crate) struct Draft {
    title: String,
    body: String,
    /// How long moderation takes, before anything is written.
    #[serde(default)]
    delay_ms: u64,
}

#[derive(Serialize)]
struct Made {
    id: String,
}

async fn publish<D: Posts>(
    tx: Tx<D>,
    owner: Owner,
    Json(draft): Json<Draft>,
) -> Result<impl IntoResponse, AppError> {
    if draft.title.is_empty() || draft.delay_ms > MAX_DELAY_MS {
        return Err(AppError::Invalid);
    }
    // Slow work first: no connection is held.
    tokio::time::sleep(Duration::from_millis(draft.delay_ms)).await;

    let post = Post {
        id: Uuid::new_v4().to_string(),
        title: draft.title,
        body: draft.body,
    };
    let mut conn = tx.acquire().await?;
    D::insert(&mut conn, owner.as_str(), &post).await?;
    // So that deleting the post can bury this record.
    tx.made(ResourceRef::new(&post.id));
    let location = [(header::LOCATION, format!("/posts/{}", post.id))];
    Ok((StatusCode::CREATED, location, Json(Made { id: post.id })))
}

async fn list<D: Posts>(
    State(pool): State<Pool<D>>,
    owner: Owner,
) -> Result<Json<Vec<Post>>, AppError> {
    Ok(Json(D::list(&pool, owner.as_str()).await?))
}

async fn read<D: Posts>(
    State(pool): State<Pool<D>>,
    owner: Owner,
    Path(id): Path<String>,
) -> Result<Json<Post>, AppError> {
    D::read(&pool, owner.as_str(), &id)
        .await?
        .map(Json)
        .ok_or(AppError::NotFound)
}

async fn remove<D: Posts>(
    tx: Tx<D>,
    owner: Owner,
    Path(id): Path<String>,
) -> Result<StatusCode, AppError> {
    let mut conn = tx.acquire().await?;
    if !D::delete(&mut conn, owner.as_str(), &id).await? {
        return Err(AppError::NotFound);
    }
    drop(conn);
    let resource_ref = ResourceRef::new(id);
    tx.tombstone_resource(TombstoneResource {
        owner,
        operation: PUBLISH,
        resource_ref,
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a client is told. Never the database's own words.
pub(crate) enum AppError {
    Invalid,
    NotFound,
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
            Self::Invalid => {
                let rules = "title must not be empty, delay_ms is at most 60000\n";
                (StatusCode::UNPROCESSABLE_ENTITY, rules).into_response()
            }
            Self::NotFound => (StatusCode::NOT_FOUND, "no such post\n").into_response(),
            Self::Database(error) => {
                tracing::error!(%error, "database");
                (StatusCode::INTERNAL_SERVER_ERROR, "something went wrong\n").into_response()
            }
            Self::Tx(error) => error.into_response(),
        }
    }
}
