//! Exactly-once HTTP writes for axum.
//!
//! A client retries a write: the network failed, the app restarted, the phone was offline for three
//! weeks, two devices sent it at once. This layer turns every arrival of one `Idempotency-Key` into
//! **one write**, and answers each arrival with the result of that write.
//!
//! ```text
//! effect committed  <=>  completed record committed     (one transaction, fenced by the claim token)
//! ```
//!
//! On no path, crash, race, disconnect or time-out does one key commit two effects, or does a client
//! read 2xx for an effect that is not committed.
//!
//! # Example
//!
//! The handler takes a [`Tx`], the transaction of its request. The layer commits it together with
//! the record of the key when the handler answers 2xx, and rolls it back otherwise.
//!
#![cfg_attr(
    all(feature = "postgres", feature = "axum"),
    doc = r##"
```no_run
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse as _;
use axum::{Json, Router, extract::Path, routing::{delete, post}};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres};
use tower_idempotency::{
    IdempotencyLayer, Operation, Owner, ResourceRef, TombstoneResource, Tx, TxError, migrate,
};

const PUBLISH: Operation = Operation::from_static("publish");

#[derive(Deserialize)]
struct Draft { title: String }

#[derive(Serialize)]
struct Post { id: i64, title: String }

async fn publish(
    tx: Tx<Postgres>,
    owner: Owner,
    Json(draft): Json<Draft>,
) -> Result<(StatusCode, Json<Post>), AppError> {
    // Slow work first: until `acquire`, no connection is held.
    let mut conn = tx.acquire().await?;
    let id: i64 = sqlx::query_scalar("INSERT INTO post (author, title) VALUES ($1, $2) RETURNING id")
        .bind(owner.as_str())
        .bind(&draft.title)
        .fetch_one(&mut *conn)
        .await?;
    tx.made(ResourceRef::new(id)); // so that deleting the post can bury this record
    Ok((StatusCode::CREATED, Json(Post { id, title: draft.title })))
}

async fn remove(
    tx: Tx<Postgres>,
    owner: Owner,
    Path(id): Path<i64>,
) -> Result<StatusCode, AppError> {
    let mut conn = tx.acquire().await?;
    let deleted = sqlx::query("DELETE FROM post WHERE id = $1 AND author = $2")
        .bind(id)
        .bind(owner.as_str())
        .execute(&mut *conn)
        .await?
        .rows_affected();
    drop(conn);
    if deleted == 0 {
        return Ok(StatusCode::NOT_FOUND);
    }
    let resource_ref = ResourceRef::new(id);
    tx.tombstone_resource(TombstoneResource { owner, operation: PUBLISH, resource_ref }).await?;
    Ok(StatusCode::NO_CONTENT)
}

# async fn run(pool: PgPool) -> Result<(), Box<dyn std::error::Error>> {
migrate(&pool).await?;
let idempotency = IdempotencyLayer::new(pool);
let app: Router = Router::new()
    .route("/posts", post(publish).layer(idempotency.clone().operation(PUBLISH)))
    .route(
        "/posts/{id}",
        delete(remove).layer(idempotency.clone().operation("remove").methods([Method::DELETE])),
    )
    // Outside: puts the caller's `Owner` into the request's extensions.
    .layer(axum::middleware::from_fn(authenticate));
# Ok(()) }

// Whatever authenticates: a session, a token.
async fn authenticate(mut request: axum::extract::Request, next: axum::middleware::Next) -> axum::response::Response {
    let Ok(owner) = Owner::new("the caller's id") else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    request.extensions_mut().insert(owner);
    next.run(request).await
}

// A `TxError` is a response: 503 where a retry is right, never the database's own words.
enum AppError { Database(sqlx::Error), Tx(TxError) }

impl From<sqlx::Error> for AppError { fn from(error: sqlx::Error) -> Self { Self::Database(error) } }
impl From<TxError> for AppError { fn from(error: TxError) -> Self { Self::Tx(error) } }

impl axum::response::IntoResponse for AppError {
    fn into_response(self) -> axum::response::Response {
        match self {
            Self::Database(error) => {
                eprintln!("{error}"); // or whatever the application logs with
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Self::Tx(error) => error.into_response(),
        }
    }
}
```
"##
)]
//!
//! One layer can also go around a whole router; it then names operations itself, by
//! [`operation_for`](IdempotencyLayer::operation_for),
//! [`operation_with`](IdempotencyLayer::operation_with), or the method and the matched route. Layer
//! either the routes or the router, not both.
//!
//! # What each arrival gets
//!
//! | arrival | answer |
//! |---|---|
//! | a new key | the handler's |
//! | a key whose request was completed | the stored result, with `Idempotent-Replayed: true` |
//! | a key whose request is still running | 409, `Retry-After: 1` |
//! | a key that was used for another request | 409, or as [`mismatch_status`](IdempotencyLayer::mismatch_status) says |
//! | a key whose result has been deleted since | 410 |
//! | no key, or a malformed one | 400 |
//!
//! Only 2xx is kept. Whatever else a handler answers is rolled back and its key is free again, so
//! that a retry runs. Every answer of the layer's own is a [`Problem`]; [`problems`] lists them, and
//! `protocol.md` in the repository has all the rules.
//!
//! # What is not covered
//!
//! * **A write made outside of the [`Tx`]**, on another connection or in a spawned task: it is there
//!   whether or not the request is.
//! * **An effect outside of the database**: a mail, a call of another service. Write the intent
//!   within the `Tx` (an outbox) and let a worker do it, with the key passed on.
//! * **A handler that ends the transaction itself** (`COMMIT`, or DDL where that commits). The layer
//!   notices, answers 500, and never runs the key again; but where the process dies, is taken over or
//!   loses its connection before it can say so, the key may run twice. This is the one exception to
//!   the promise.
//! * **A fail-over that loses acknowledged commits**, as to an asynchronous standby. Effect and
//!   record are lost together, so that a retry is right.
//! * **The extensions of a response** are not replayed, nor are headers outside of the list in
//!   `protocol.md`; `Set-Cookie` never is unless asked for.
//!
//! # Order of layers
//!
//! From the outside in: trace, request id, CORS, rate limit, compression, authentication,
//! **idempotency**, time-out, handler. In a chain of `.layer(..)` calls on a router, the last one is
//! the outermost.
//!
//! * Authentication outside, or there is no owner, and every request is answered 500.
//! * Compression outside: inside, gzip would be replayed to clients that never asked for it.
//! * A panic goes on outwards once its key is free: a layer that catches panics belongs outside.
//! * A time-out inside is an answer, and not 2xx: rolled back, the key is free. Outside, it only ends
//!   the client's wait while the work goes on, and the retry gets the result.
//! * A limit of concurrency outside does not bound the handlers whose clients have hung up; the
//!   layer's own [`max_in_flight`](IdempotencyLayer::max_in_flight) does.
//!
//! # Defaults
//!
//! | setting | default |
//! |---|---|
//! | [`methods`](IdempotencyLayer::methods) | POST and PATCH; OPTIONS and HEAD never |
//! | [`operation`](IdempotencyLayer::operation) | method and matched route: `POST /posts/{}` |
//! | [`optional`](IdempotencyLayer::optional) | a key is required: 400 without one |
//! | [`key_header`](IdempotencyLayer::key_header), [`strict_keys`](IdempotencyLayer::strict_keys) | `Idempotency-Key`, quoted or bare |
//! | [`operation_alias`](IdempotencyLayer::operation_alias) | none |
//! | [`Owner`] | required: 500 without one; [`Owner::shared`] is an explicit choice |
//! | [`stale_after`](IdempotencyLayer::stale_after) | 5 minutes |
//! | [`renew_claims`](IdempotencyLayer::renew_claims) | off |
//! | [`ttl`](IdempotencyLayer::ttl) | none: records are kept for ever |
//! | [`mismatch_status`](IdempotencyLayer::mismatch_status) | 409 |
//! | [`max_request_body`](IdempotencyLayer::max_request_body) | 2 MiB |
//! | [`max_response_body`](IdempotencyLayer::max_response_body), [`capture_within`](IdempotencyLayer::capture_within) | 1 MiB, 10 seconds |
//! | [`keep_header`](IdempotencyLayer::keep_header), [`replay_header`](IdempotencyLayer::replay_header) | those of `protocol.md`, `Idempotent-Replayed` |
//! | [`bind_header`](IdempotencyLayer::bind_header), [`ignore_path`](IdempotencyLayer::ignore_path) | method, path, query, content headers and body count |
//! | [`fingerprint_body_with`](IdempotencyLayer::fingerprint_body_with) | the raw bytes |
//! | [`wait_for_in_progress`](IdempotencyLayer::wait_for_in_progress) | off: 409 at once |
//! | [`authorize_replay_with`](IdempotencyLayer::authorize_replay_with) | whoever has the owner's key gets its result |
//! | [`codec`](IdempotencyLayer::codec), [`problem_with`](IdempotencyLayer::problem_with) | stored as it is; `application/problem+json` |
//! | [`store_timeout`](IdempotencyLayer::store_timeout) | 30 seconds |
//! | [`max_in_flight`](IdempotencyLayer::max_in_flight) | 1,024 requests |
//!
//! Where no record is kept (the method is not covered, or an optional key is absent) the handler
//! still gets a [`Tx`], committed on 2xx and rolled back otherwise.
//!
//! # Handlers
//!
//! * Do slow work before the first [`Tx::acquire`]: it holds no connection then. Requests that wait
//!   so do not use up the pool.
//! * Drop the connection before the handler answers; a guard that outlives it is answered 500.
//! * A handler runs in a task of its own, so task-locals do not follow into it:
//!   [`scope_with`](IdempotencyLayer::scope_with). Its tracing span is a child of the caller's.
//! * A client that hangs up does not stop the handler. At shutdown, await
//!   [`drain`](IdempotencyLayer::drain) after the server and before the pool is closed.
//! * On SQLite one transaction writes at a time: keep it short, and use WAL.
//! * On MySQL and MariaDB a change of the schema commits whatever is open, and a deadlock rolls all of
//!   it back: a handler that does the one, or swallows the other, is answered 500, and its key 410 from
//!   then on. The application's tables must be InnoDB. Their columns of owners and the like need
//!   `COLLATE utf8mb4_bin`, or they take `a` and `A` for one.
//!
//! # For operators
//!
//! The [`Store`] of a layer ([`IdempotencyLayer::store`]) can [`lookup`](Store::lookup) a record,
//! [`release`](Store::release) a claim by the token that was looked up,
//! [`erase_owner`](Store::erase_owner), and [`purge`](Store::purge) what has expired; `sweep` purges in
//! the background. `SqlxStore::check` looks at the database, to be logged at start. On PostgreSQL
//! and MySQL, where the application's own `pool.begin()` may be cancelled, for instance by a time-out,
//! make the pool with `harden`: sqlx 0.9.0 gives such connections back inside of a transaction.
//!
//! A pool with `test_before_acquire(false)` saves two round trips for each new key on PostgreSQL, and
//! three on MySQL: a claim whose connection turns out dead is tried again.
//! `SqlxStore::relaxed_claims` starts handlers sooner on PostgreSQL, and says what it trades.
//! `docs/performance.md` in the repository has what all this costs.
//!
//! Each protected request has a tracing span `idempotency` with its operation, a short hash of its
//! key, its outcome, and how long each step at the database took. Keys, owners, bodies and tokens
//! are never logged.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `postgres`, `sqlite`, `mysql` (MariaDB too) | the store over that pool of sqlx's |
//! | `axum` (default) | operations named by axum's matched route; the path as the client sent it, also under `nest` |
//!
//! The pools are those of sqlx 0.9; its runtime and TLS are chosen by the application.

pub use tower_idempotency_core::*;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use tower_idempotency_sqlx::{
    Dialect, Finding, Severity, SqlxStore, Tx, TxConnection, harden, migrate, sweep,
};
