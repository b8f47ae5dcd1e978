//! One server process: a small service over the layer, on either database.

pub(crate) mod app;
pub(crate) mod points;
mod store;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use clap::Args;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tower_idempotency::{IdempotencyLayer, Owner, SqlxStore};
use tracing_subscriber::EnvFilter;

use self::points::{Mine, Trigger};
use self::store::Mined;
use crate::Outcome;
use crate::effects::Effects;

/// How long a claim lives.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(1);

/// How long a step at the store may take.
const STORE_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Whose keys they all are.
pub(crate) const OWNER: &str = "torture";

/// Names the variable that says where the server kills itself.
pub(crate) const KILL_AT: &str = "KILL_AT";

#[derive(Args)]
pub(crate) struct Options {
    /// The database, which has its tables already.
    #[arg(long)]
    url: String,
    #[arg(long)]
    listen: SocketAddr,
    /// Where it kills itself: `committed:3` at the third pass of that point.
    #[arg(long, env = KILL_AT)]
    kill_at: Option<Trigger>,
    /// Whether there is a pooler that keeps no prepared statements.
    #[arg(long)]
    unprepared: bool,
    /// Whether claims are renewed.
    #[arg(long)]
    renew: bool,
    /// How long arrivals wait for a running key.
    #[arg(long, default_value_t = 0)]
    wait_ms: u64,
}

pub(crate) async fn run(options: Options) -> Outcome {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_ansi(false)
        .without_time()
        .with_writer(std::io::stderr)
        .init();
    let mine = Mine::new(options.kill_at);
    // Whether the database is up does not matter yet.
    if options.url.starts_with("sqlite:") {
        let connect = sqlite_options(&options.url)?;
        let at_commit = mine.clone();
        let pool = SqlitePoolOptions::new()
            .max_connections(6)
            .acquire_timeout(Duration::from_secs(2))
            .after_connect(move |conn, _| {
                let mine = at_commit.clone();
                Box::pin(async move {
                    conn.lock_handle().await?.set_commit_hook(move || {
                        mine.amid_commit();
                        true
                    });
                    Ok(())
                })
            })
            .connect_lazy_with(connect);
        serve(SqlxStore::new(pool), options, mine).await
    } else if options.url.starts_with("mysql:") {
        let pool = MySqlPoolOptions::new()
            .max_connections(12)
            .acquire_timeout(Duration::from_secs(2))
            .connect_lazy(&options.url)?;
        serve(SqlxStore::new(pool), options, mine).await
    } else {
        let pool = PgPoolOptions::new()
            .max_connections(12)
            .acquire_timeout(Duration::from_secs(2))
            .connect_lazy(&options.url)?;
        let mut store = SqlxStore::new(pool);
        if options.unprepared {
            store = store.unprepared();
        }
        serve(store, options, mine).await
    }
}

/// The file, in the journal mode that the manual asks for.
pub(crate) fn sqlite_options(url: &str) -> sqlx::Result<SqliteConnectOptions> {
    let options: SqliteConnectOptions = url.parse()?;
    Ok(options.journal_mode(SqliteJournalMode::Wal))
}

async fn serve<D: Effects>(store: SqlxStore<D>, options: Options, mine: Mine) -> Outcome {
    let store = Mined::new(store, mine.clone());
    let mut layer = IdempotencyLayer::with_store(store)
        .stale_after(STALE_AFTER)
        .store_timeout(STORE_TIMEOUT)
        .wait_for_in_progress(Duration::from_millis(options.wait_ms));
    if options.renew {
        layer = layer.renew_claims(Duration::from_secs(10));
    }
    let app = app::router(&layer, Owner::new(OWNER)?, mine);
    let listener = bind(options.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    tokio::select! {
        served = axum::serve(listener, app) => Ok(served?),
        () = abandoned() => Ok(()),
    }
}

/// Ends when the process that started this one is gone.
async fn abandoned() {
    let (gone, is_gone) = oneshot::channel::<()>();
    thread::spawn(move || {
        // An error is an end, too.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(gone);
    });
    // Nothing is ever sent.
    let _ = is_gone.await;
}

/// A server that comes back wants the port of the one that died, which some client may have been
/// given for a moment.
async fn bind(address: SocketAddr) -> Outcome<TcpListener> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpListener::bind(address).await {
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(50)).await,
            Ok(listener) => return Ok(listener),
        }
    }
}
