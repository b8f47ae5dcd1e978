//! Other crates side by side with the layer, on PostgreSQL: the last part of `cargo xtask bench`.

mod axum_idempotent;
mod cratestack;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use benches::CONNECTIONS;
use benches::database::{BenchDb as _, PostgresEngine};
use benches::place::{Peer, Place};
use benches::sheet;
use benches::subject::unprotected;
use clap::Parser;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx_ours::Postgres;
use test_support::{Proxy, Traffic};

/// Measures what other crates cost: about seven minutes.
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

    let called = place(&engine, Postgres::TITLE, None).await;
    called.measure(&mut cells).await;

    let mut served = place(&engine, "PostgreSQL, over HTTP", None).await;
    (served.over_http, served.sizes) = (true, &[1024]);
    served.measure(&mut cells).await;

    let proxy = Proxy::start(engine.server().address()).await;
    let mut away = place(&engine, "PostgreSQL, 1 ms away", Some(proxy.address())).await;
    // A round trip takes a millisecond longer.
    proxy.set_both(Traffic::Delay(Duration::from_micros(500)));
    away.slice *= 2;
    away.measure(&mut cells).await;

    if let Some(folder) = arguments.write
        && let Err(error) = sheet::write(cells, &folder)
    {
        eprintln!("error: {}: {error}", folder.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// A database with everybody on it, by unix socket or through a proxy. The handlers share a pool, and
/// so do the stores of the others, which are of another sqlx: those have twice as many connections
/// between them as ours.
async fn place(
    engine: &PostgresEngine,
    title: &'static str,
    proxy: Option<SocketAddr>,
) -> Place<Postgres> {
    let options = engine.create().await;
    let theirs = their_pool(engine, options.get_database().unwrap_or_default(), proxy).await;
    let options = match proxy {
        None => options,
        Some(proxy) => engine.via(&options, proxy),
    };
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

/// Like ours: with as many connections, and without a ping before each use.
async fn their_pool(engine: &PostgresEngine, database: &str, proxy: Option<SocketAddr>) -> PgPool {
    let options: PgConnectOptions = engine.server().url().parse().expect("a URL");
    let options = options.database(database);
    let options = match proxy {
        None => options.socket(engine.server().folder()),
        Some(proxy) => options.host(&proxy.ip().to_string()).port(proxy.port()),
    };
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .min_connections(CONNECTIONS)
        .test_before_acquire(false);
    pool.connect_with(options).await.expect("a pool")
}
