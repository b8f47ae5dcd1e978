//! The protocol's statements, written into the handler: the limit of what a layer can reach.

use std::fmt::Write as _;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use sha2::{Digest as _, Sha256};
use sqlx::Pool;
use tower_idempotency::{ClaimToken, Owner};

use super::{created, failed, waited};
use crate::database::{BenchDb, Found, HandClaim};
use crate::post::Draft;

pub(super) fn app<DB: BenchDb>(pool: Pool<DB>) -> Router {
    Router::new()
        .route("/posts", post(write::<DB>))
        .with_state(pool)
}

async fn write<DB: BenchDb>(
    State(pool): State<Pool<DB>>,
    owner: Owner,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Response> {
    let key = headers
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok())
        .ok_or_else(|| StatusCode::BAD_REQUEST.into_response())?;
    let fingerprint = format!("hs1:{}", hex(&Sha256::digest(&body)));
    let claim = HandClaim {
        owner: owner.as_str(),
        key,
        token: *ClaimToken::random().as_bytes(),
        fingerprint: &fingerprint,
    };
    let found = {
        let mut conn = pool.acquire().await.map_err(failed)?;
        DB::hand_claim(&mut conn, &claim).await.map_err(failed)?
    };
    match found {
        Found::Acquired => {}
        Found::Completed { status, body } => {
            let json = [(header::CONTENT_TYPE, "application/json")];
            let status = StatusCode::from_u16(status).unwrap_or_default();
            return Ok((status, json, body).into_response());
        }
        Found::InProgress | Found::Mismatch => return Err(StatusCode::CONFLICT.into_response()),
    }
    waited(&headers).await;
    let draft: Draft =
        serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST.into_response())?;
    let mut transaction = pool
        .begin_with(DB::hand_begin(&hex(&claim.token)))
        .await
        .map_err(failed)?;
    let id = DB::insert(&mut transaction, owner.as_str(), &draft)
        .await
        .map_err(failed)?;
    let (status, headers, body) = created(id, &draft);
    let kept = format!(
        "content-type: {}\nlocation: {}\n",
        headers[0].1, headers[1].1
    );
    let completed = DB::hand_complete(
        &mut transaction,
        &claim,
        status.as_u16(),
        kept.as_bytes(),
        &body,
    )
    .await
    .map_err(failed)?;
    if !completed {
        return Err(StatusCode::CONFLICT.into_response());
    }
    transaction.commit().await.map_err(failed)?;
    Ok((status, headers, body).into_response())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
