//! What is measured: one application, with and without the protocol.

mod bare;
mod by_hand;
mod ours;

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use sqlx::Pool;
use tower_idempotency::{Owner, SqlxStore};

use crate::database::BenchDb;
use crate::post::{Draft, Post};

pub use ours::in_memory;
use ours::layered;

/// A way to write the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The handler in a plain transaction.
    Bare,
    /// The protocol's statements, written into the handler.
    ByHand,
    /// The layer.
    Ours,
    /// The layer, with relaxed claims.
    Relaxed,
    /// A bare handler that reads one row by its primary key, for what only reads.
    Read,
}

impl Subject {
    /// As it is called in the table.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::ByHand => "by hand",
            Self::Ours => "ours",
            Self::Relaxed => "ours relaxed",
            Self::Read => "bare read",
        }
    }

    /// The application, if the database can have it.
    #[must_use]
    pub fn app<DB: BenchDb>(self, pool: &Pool<DB>) -> Option<Router> {
        let store = SqlxStore::new(pool.clone());
        let app = match self {
            Self::Bare => bare::writing(pool.clone()),
            Self::Read => bare::reading(pool.clone()),
            Self::ByHand => by_hand::app(pool.clone()),
            Self::Ours => layered(store),
            Self::Relaxed => layered(DB::relaxed(store)?),
        };
        Some(authenticated(app))
    }
}

/// The bare handler, for another crate to protect. Whoever does puts authentication around both.
pub fn unprotected<DB: BenchDb>(pool: Pool<DB>) -> Router {
    bare::writing(pool)
}

/// Puts authentication around an application, as every one has it.
pub fn authenticated(app: Router) -> Router {
    app.layer(from_fn(authenticate))
}

async fn authenticate(mut request: Request, next: Next) -> Response {
    match Owner::new("account-7f3a") {
        Ok(owner) => drop(request.extensions_mut().insert(owner)),
        Err(_) => return StatusCode::UNAUTHORIZED.into_response(),
    }
    next.run(request).await
}

/// A header that lets a handler wait for ever, so that its key stays in progress.
pub const WAIT: &str = "x-wait";

/// How many handlers have begun to wait.
pub static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Waits for ever, if the request says so.
async fn waited(headers: &HeaderMap) {
    if headers.contains_key(WAIT) {
        WAITING.fetch_add(1, Ordering::SeqCst);
        pending().await
    }
}

/// Keeps a body under each of the keys, to be read by [`Subject::Read`].
pub async fn keep_replies<DB: BenchDb>(pool: &Pool<DB>, keys: &[String], body: &[u8]) {
    let mut conn = pool.acquire().await.expect("a connection");
    for key in keys {
        DB::keep(&mut conn, key, body).await.expect("an insert");
    }
}

/// What every handler answers.
fn created(id: i64, draft: &Draft) -> (StatusCode, [(header::HeaderName, String); 2], Vec<u8>) {
    let post = Post {
        id,
        title: &draft.title,
        text: &draft.text,
    };
    let headers = [
        (header::CONTENT_TYPE, "application/json".into()),
        (header::LOCATION, format!("/posts/{id}")),
    ];
    let body = serde_json::to_vec(&post).unwrap_or_default();
    (StatusCode::CREATED, headers, body)
}

/// What every handler answers to a failure of the database.
fn failed(error: impl std::fmt::Display) -> Response {
    eprintln!("a handler failed: {error}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}
