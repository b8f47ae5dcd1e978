//! Real engines for tests: a PostgreSQL and a MariaDB server, a database of its own for every test,
//! and a proxy that breaks connections.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), sqlx::Error> {
//! use std::time::Duration;
//! use sqlx::{Connection, PgConnection};
//! use test_support::{Direction, Proxy, Traffic, postgres_database};
//!
//! let database = postgres_database().await;
//! let proxy = Proxy::start(database.address()).await;
//! // Without a pool, whose pings are round trips too.
//! let mut conn = PgConnection::connect(&database.url_via(proxy.address())).await?;
//!
//! let before = proxy.round_trips();
//! sqlx::raw_sql("SELECT 1").execute(&mut conn).await?;
//! assert_eq!(proxy.round_trips() - before, 1);
//!
//! proxy.set(Direction::ToClient, Traffic::Hold);
//! let answer = sqlx::raw_sql("SELECT 1").execute(&mut conn);
//! assert!(tokio::time::timeout(Duration::from_millis(50), answer).await.is_err());
//!
//! proxy.reset_all();
//! proxy.set_both(Traffic::Pass);
//! database.assert_none_idle_in_transaction().await;
//! # Ok(()) }
//! ```
//!
//! The server is the one that `TEST_POSTGRES_URL` or `TEST_MYSQL_URL` names, else one that this
//! process starts when the first database is asked for. A server of ours and its folder are gone soon after the
//! process that started it, however that process ended.

mod daemon;
mod error;
mod folder;
mod mysql;
mod names;
mod pgbouncer;
mod place;
mod postgres;
mod proxy;
mod shell;
mod sqlite;

pub use daemon::{Daemon, DaemonError, free_address};
pub use error::ServerError;
pub use mysql::{
    MariadbBinaries, MariadbNode, MariadbServer, MysqlAdmin, MysqlDatabase, mysql_database,
};
pub use names::run_prefix;
pub use pgbouncer::PgBouncer;
pub use postgres::{
    Admin, Binaries, PostgresNode, PostgresServer, ServerSettings, TestDatabase,
    idle_in_transaction, postgres_database,
};
pub use proxy::{Direction, Proxy, Traffic};
pub use sqlite::{SqliteDatabase, sqlite_database, sqlite_version};
