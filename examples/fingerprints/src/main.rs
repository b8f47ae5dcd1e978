//! A service whose clients write the same request differently each time.
//!
//! Run with
//!
//! ```text
//! cargo run -p fingerprints
//! ```
//!
//! and try, in another terminal:
//!
//! ```text
//! send() { curl -i "http://127.0.0.1:3000/$1" -H 'Idempotency-Key: k1' "${@:2}"; }
//!
//! send json -H 'Content-Type: application/json' -d '{"a":1,"b":2}'    # 201
//! send json -H 'Content-Type: application/json' -d '{"b":2,"a":1}'    # 201, Idempotent-Replayed: true
//! send json -H 'Content-Type: application/json' -d '{"b":2,"a":2}'    # 409: the key is taken
//! send form -F name=value    # 201
//! send form -F name=value    # with a new boundary: 201, Idempotent-Replayed: true
//! ```

use std::error::Error;

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use fingerprints::{canonical_form, canonical_json};
use tokio::net::TcpListener;
use tower_idempotency::{IdempotencyLayer, MemoryStore, Owner};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // In memory, for a try: whatever it promises ends with the process.
    let idempotency = IdempotencyLayer::with_store(MemoryStore::new());
    let json = idempotency
        .clone()
        .operation("json")
        .fingerprint_body_with(canonical_json);
    let form = idempotency
        .operation("form")
        .fingerprint_body_with(canonical_form);
    let app = Router::new()
        .route("/json", post(count).layer(json))
        .route("/form", post(count).layer(form))
        // Everybody is one owner here: an authentication layer would say who.
        .layer(axum::Extension(Owner::shared()));
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn count(body: Bytes) -> (StatusCode, String) {
    (StatusCode::CREATED, format!("{} bytes\n", body.len()))
}
