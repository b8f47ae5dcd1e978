//! The routes.

use std::fmt::Write as _;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sqlx::{Sqlite, SqlitePool};
use tower_idempotency::{IdempotencyLayer, Owner, SqlxStore, Tx};

pub(crate) async fn make_table(pool: &SqlitePool) -> sqlx::Result<()> {
    let sql = "CREATE TABLE IF NOT EXISTS token (owner text NOT NULL, name text NOT NULL)";
    sqlx::query(sql).execute(pool).await.map(drop)
}

pub(crate) fn router(idempotency: IdempotencyLayer<SqlxStore<Sqlite>>) -> Router {
    Router::new().route(
        "/tokens",
        post(make_token).layer(idempotency.operation("make-token")),
    )
}

/// NOT an authentication: it believes whatever the header says.
pub(crate) fn authenticated(app: Router) -> Router {
    app.layer(from_fn(async |mut request: Request, next: Next| {
        let user = request
            .headers()
            .get("x-demo-user")
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
    }))
}

#[derive(Deserialize)]
struct Wish {
    name: String,
}

/// A secret that is shown once: whoever reads it is the user.
#[derive(Serialize)]
struct Made {
    token: String,
}

async fn make_token(
    tx: Tx<Sqlite>,
    owner: Owner,
    Json(wish): Json<Wish>,
) -> Result<impl IntoResponse, Response> {
    let internal = |_| StatusCode::INTERNAL_SERVER_ERROR.into_response();
    let mut secret = [0; 16];
    getrandom::fill(&mut secret).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
    // A real service would keep a digest of the secret with it.
    sqlx::query("INSERT INTO token (owner, name) VALUES ($1, $2)")
        .bind(owner.as_str())
        .bind(&wish.name)
        .execute(&mut *conn)
        .await
        .map_err(internal)?;
    let token = secret.iter().fold("token-".to_owned(), |mut token, byte| {
        let _ = write!(token, "{byte:02x}");
        token
    });
    Ok((StatusCode::CREATED, Json(Made { token })))
}
