//! A publishing service whose posts are made once, whatever the network does.
//!
//! Run with
//!
//! ```text
//! cargo run -p publish
//! ```
//!
//! and try, in another terminal:
//!
//! ```text
//! post() { curl -i http://127.0.0.1:3000/posts -H 'X-Demo-User: ann' -H 'Content-Type: application/json' "$@"; }
//!
//! post -H 'Idempotency-Key: k1' -d '{"title":"Hello","body":"World"}'    # 201
//! post -H 'Idempotency-Key: k1' -d '{"title":"Hello","body":"World"}'    # 201, Idempotent-Replayed: true
//! post -H 'Idempotency-Key: k1' -d '{"title":"Hello","body":"Moon"}'     # 409: the key is taken
//! ```
//!
//! | variable | default | what it is |
//! |---|---|---|
//! | `DATABASE_URL` | `sqlite://publish.db` | `sqlite://path`, `postgres://...` or `mysql://...` |
//! | `LISTEN` | `127.0.0.1:3000` | where to listen |
//! | `STALE_AFTER` | `300` | seconds until the claim of a killed process is taken over |
//!
//! `cargo run -p publish -- storm` sends a thousand posts by impatient clients while it kills the
//! service again and again, and counts what came of them.

mod app;
mod posts;
mod storm;

use std::env;
use std::error::Error;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use sqlx::Pool;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use tokio::net::TcpListener;
use tower_idempotency::{IdempotencyLayer, migrate};
use tracing_subscriber::EnvFilter;

use crate::posts::Posts;

/// How long a shutdown waits for handlers whose clients have gone.
const DRAIN: Duration = Duration::from_secs(30);

/// A publishing service whose posts are made once, whatever the network does.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Sends posts by impatient clients while the service is killed again and again.
    Storm(storm::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Returned from `main`, it would be shown as a program sees it.
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    if let Some(Command::Storm(options)) = Arguments::parse().command {
        return storm::run(&options).await;
    }
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();

    let url = env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite://publish.db".into());
    if url.starts_with("sqlite:") {
        let options: SqliteConnectOptions = url.parse()?;
        // WAL: readers and the one writer do not wait for each other.
        let options = options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
        serve(SqlitePoolOptions::new().connect_with(options).await?).await
    } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        serve(
            PgPoolOptions::new()
                .max_connections(20)
                .connect(&url)
                .await?,
        )
        .await
    } else if url.starts_with("mysql:") || url.starts_with("mariadb:") {
        let pool = MySqlPoolOptions::new().max_connections(20);
        serve(pool.connect(&url).await?).await
    } else {
        Err("DATABASE_URL must begin with sqlite:, postgres: or mysql:".into())
    }
}

async fn serve<D: Posts>(pool: Pool<D>) -> Result<(), Box<dyn Error>> {
    migrate(&pool).await?;
    D::make_table(&pool).await?;

    let stale_after = env::var("STALE_AFTER")
        .ok()
        .map(|seconds| seconds.parse())
        .transpose();
    let stale_after = stale_after.map_err(|_| "STALE_AFTER must be a number of seconds")?;
    let idempotency = IdempotencyLayer::new(pool.clone())
        .stale_after(Duration::from_secs(stale_after.unwrap_or(300)));

    let listen = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = TcpListener::bind(&listen).await.map_err(|error| {
        format!("cannot listen on {listen}: {error}; set LISTEN to another address")
    })?;
    println!(
        "listening on http://{} with {}",
        listener.local_addr()?,
        D::NAME
    );

    let app = app::router(pool.clone(), &idempotency);
    axum::serve(listener, app)
        .with_graceful_shutdown(shutdown())
        .await?;
    // Handlers whose clients hung up may still run.
    let left = idempotency.drain(DRAIN).await;
    pool.close().await;
    println!("stopped; {left} requests left");
    Ok(())
}

/// Ends on Ctrl-C, and where there are signals, on SIGTERM.
async fn shutdown() {
    #[cfg(unix)]
    let terminated = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated => {}
    }
}
