//! Other crates side by side with the layer, on PostgreSQL: the last part of `cargo xtask bench`.

mod axum_idempotent;
mod cratestack;

use std::path::PathBuf;
use std::process::ExitCode;

use benches::CONNECTIONS;
use benches::cell::Cell;
use benches::database::{BenchDb as _, PostgresEngine};
use benches::place::{Peer, Place};
use benches::sheet;
use benches::subject::unprotected;
use clap::Parser;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx_ours::Postgres;

/// Measures what other crates cost: about three minutes.
#[derive(Parser)]
struct Arguments {
    /// The folder that cells and chart are written to.
    #[arg(long)]
    write: Option<PathBuf>,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let engine = PostgresEngine::start();
    let mut cells = Vec::new();
    print!("{}", Cell::CSV_HEAD);
    let called = place(&engine, Postgres::TITLE).await;
    called.measure(&mut cells).await;
    let mut served = place(&engine, "PostgreSQL, over HTTP").await;
    (served.over_http, served.sizes) = (true, &[1024]);
    served.measure(&mut cells).await;
    if let Some(folder) = arguments.write
        && let Err(error) = sheet::write(cells, &folder)
    {
        eprintln!("error: {}: {error}", folder.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// A database with everybody on it. The handlers share a pool, and so do the stores of the others,
/// which are of another sqlx: those have twice as many connections between them as ours.
async fn place(engine: &PostgresEngine, title: &'static str) -> Place<Postgres> {
    let options = engine.create().await;
    let theirs = their_pool(engine, options.get_database().unwrap_or_default()).await;
    let pool = engine.pool(options, CONNECTIONS).await;
    let bare = || unprotected(pool.clone());
    let peers: Vec<Peer> = vec![
        axum_idempotent::in_memory(bare()),
        axum_idempotent::on_postgres(bare(), theirs.clone()).await,
        cratestack::on_postgres(bare(), theirs).await,
    ];
    let mut place = Place::new(title, pool);
    place.peers = peers;
    place
}

/// Like ours: by unix socket, with as many connections, and without a ping before each use.
async fn their_pool(engine: &PostgresEngine, database: &str) -> PgPool {
    let options: PgConnectOptions = engine.server().url().parse().expect("a URL");
    let options = options.socket(engine.server().folder()).database(database);
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .min_connections(CONNECTIONS)
        .test_before_acquire(false);
    pool.connect_with(options).await.expect("a pool")
}
