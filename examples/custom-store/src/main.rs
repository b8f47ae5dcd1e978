//! Serves notes from one file: see the library's front page.
//!
//! Run with
//!
//! ```text
//! cargo run -p custom-store
//! ```

use std::error::Error;
use std::time::Duration;

use custom_store::{RedbStore, router};
use tokio::net::TcpListener;
use tower_idempotency::IdempotencyLayer;
use tracing_subscriber::EnvFilter;

/// How long a shutdown waits for handlers whose clients have gone.
const DRAIN: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).init();

    let idempotency = IdempotencyLayer::with_store(RedbStore::open("notes.db")?);
    let listener = TcpListener::bind("127.0.0.1:3001").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router(&idempotency))
        .with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) })
        .await?;
    idempotency.drain(DRAIN).await;
    Ok(())
}
