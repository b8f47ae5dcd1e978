//! A service that is called by pages of another origin.
//!
//! Run with
//!
//! ```text
//! cargo run -p browser
//! ```
//!
//! and try, in the console of a page that is served at `http://localhost:8080`:
//!
//! ```text
//! // One key for each order, made before the first try, and the same for each retry of it.
//! const key = crypto.randomUUID();
//! const order = () => fetch("http://127.0.0.1:3000/orders", {
//!     method: "POST",
//!     headers: { "Content-Type": "application/json", "Idempotency-Key": key, "X-Demo-User": "ann" },
//!     body: JSON.stringify({ what: "tea" }),
//! });
//! (await order()).headers.get("Idempotent-Replayed")    // null
//! (await order()).headers.get("Idempotent-Replayed")    // "true"
//! ```
//!
//! | variable | default | what it is |
//! |---|---|---|
//! | `PAGE` | `http://localhost:8080` | the origin of the page that may call |

mod app;
#[cfg(test)]
mod tests;

use std::env;
use std::error::Error;

use tokio::net::TcpListener;
use tower_idempotency::{IdempotencyLayer, MemoryStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let page = env::var("PAGE").unwrap_or_else(|_| "http://localhost:8080".into());
    // In memory, for a try: whatever it promises ends with the process.
    let idempotency = IdempotencyLayer::with_store(MemoryStore::new());
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!(
        "listening on http://{} for pages of {page}",
        listener.local_addr()?
    );
    axum::serve(listener, app::router(page.parse()?, idempotency)).await?;
    Ok(())
}
