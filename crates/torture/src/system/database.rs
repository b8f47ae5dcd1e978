//! The database that the servers share.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, MySql, Pool, Postgres, Sqlite, SqliteConnection};
use test_support::{SqliteDatabase, idle_in_transaction, sqlite_database};
use tokio::sync::Mutex;
use tokio::time::sleep;
use tower_idempotency::migrate;
use url::Url;

use super::cluster::Replication;
use super::mariadb::Mariadb;
use super::place::Place;
use crate::Outcome;
use crate::effects::Effects;
use crate::faults::Fault;
use crate::history::Tables;
use crate::server::sqlite_options;

/// Which database the servers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Postgres,
    /// PostgreSQL with a synchronous standby.
    Standby,
    /// Likewise with one that is behind.
    AsynchronousStandby,
    /// PostgreSQL under Patroni, with a synchronous standby.
    Patroni,
    /// PostgreSQL behind PgBouncer in transaction mode.
    Pgbouncer,
    Mariadb,
    /// Three MariaDB servers that are one cluster.
    Galera,
    Sqlite,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Standby => "PostgreSQL with a synchronous standby",
            Self::AsynchronousStandby => "PostgreSQL with an asynchronous standby",
            Self::Patroni => "PostgreSQL under Patroni",
            Self::Pgbouncer => "PostgreSQL behind PgBouncer",
            Self::Mariadb => "MariaDB",
            Self::Galera => "MariaDB with Galera, three nodes",
            Self::Sqlite => "SQLite",
        }
    }
}

/// The isolation of transactions that do not say which they want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Isolation {
    #[value(name = "read committed")]
    ReadCommitted,
    #[value(name = "repeatable read")]
    RepeatableRead,
    #[value(name = "serializable")]
    Serializable,
}

impl Isolation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

pub(crate) enum Database {
    Postgres {
        place: Place,
        pool: Pool<Postgres>,
    },
    Mysql {
        servers: Box<Mutex<Mariadb>>,
        url: Url,
        addresses: Vec<SocketAddr>,
        pool: Pool<MySql>,
    },
    Sqlite {
        file: SqliteDatabase,
        pool: Pool<Sqlite>,
    },
}

/// How long to wait for what is still on its way when the answers are out.
const AFTERMATH: Duration = Duration::from_secs(5);

impl Database {
    /// Starts it, and makes the tables.
    pub(crate) async fn start(engine: Engine, isolation: Isolation) -> Outcome<Self> {
        match engine {
            Engine::Sqlite => {
                let file = sqlite_database();
                let options = sqlite_options(&file.url())?;
                let pool = SqlitePoolOptions::new().connect_with(options).await?;
                make(&pool).await?;
                Ok(Self::Sqlite { file, pool })
            }
            Engine::Mariadb | Engine::Galera => {
                let servers = match engine {
                    Engine::Galera => Mariadb::cluster().await?,
                    _ => Mariadb::alone().await?,
                };
                let url: Url = servers.url().parse()?;
                let addresses = servers.addresses();
                let servers = Box::new(Mutex::new(servers));
                let pool = MySqlPoolOptions::new().connect(url.as_str()).await?;
                make(&pool).await?;
                let database = Self::Mysql {
                    servers,
                    url,
                    addresses,
                    pool,
                };
                Ok(database)
            }
            Engine::Postgres
            | Engine::Standby
            | Engine::AsynchronousStandby
            | Engine::Patroni
            | Engine::Pgbouncer => {
                let place = match engine {
                    Engine::Pgbouncer => Place::pooled().await?,
                    Engine::Patroni => Place::patroni().await?,
                    Engine::Standby => Place::pair(Replication::Synchronous).await?,
                    Engine::AsynchronousStandby => Place::pair(Replication::Asynchronous).await?,
                    _ => Place::server().await?,
                };
                let pool = PgPoolOptions::new().connect(place.url()).await?;
                let sql = format!(
                    "ALTER DATABASE {} SET default_transaction_isolation TO '{}'",
                    place.name(),
                    isolation.name()
                );
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await?;
                make(&pool).await?;
                Ok(Self::Postgres { place, pool })
            }
        }
    }

    /// Where the server of that number reaches it, and a proxy can be put in front of it.
    pub(crate) fn address(&self, server: usize) -> Option<SocketAddr> {
        match self {
            Self::Postgres { place, .. } => Some(place.address()),
            Self::Mysql { addresses, .. } => Some(addresses[server % addresses.len()]),
            Self::Sqlite { .. } => None,
        }
    }

    /// Its URL, through a proxy where there is one.
    pub(crate) fn url_via(&self, proxy: Option<SocketAddr>) -> String {
        match (self, proxy) {
            (Self::Postgres { place, .. }, Some(proxy)) => place.url_via(proxy),
            (Self::Postgres { place, .. }, None) => place.url().to_owned(),
            (Self::Mysql { url, .. }, Some(proxy)) => via(url, proxy),
            (Self::Mysql { url, .. }, None) => url.as_str().to_owned(),
            (Self::Sqlite { file, .. }, _) => file.url(),
        }
    }

    /// Whether prepared statements are kept on the way there.
    pub(crate) async fn prepares(&self) -> bool {
        match self {
            Self::Postgres { place, .. } => place.prepares().await,
            Self::Mysql { .. } | Self::Sqlite { .. } => true,
        }
    }

    /// What only happens to it, and not on the way there.
    pub(crate) fn disasters(&self) -> Vec<Fault> {
        match self {
            Self::Postgres { place, .. } => place.disasters(),
            Self::Mysql { addresses, .. } => Mariadb::disasters(addresses.len()),
            Self::Sqlite { .. } => Vec::new(),
        }
    }

    /// Lets one of those happen, and returns when all is as before.
    pub(crate) async fn suffer(&self, disaster: Fault) -> Outcome {
        match self {
            Self::Postgres { place, .. } => place.suffer(disaster).await,
            Self::Mysql { servers, .. } => servers.lock().await.suffer(disaster).await,
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// Since when nothing that was acknowledged has been lost; `None` where that never happens.
    pub(crate) async fn lost_until(&self) -> Option<Instant> {
        match self {
            Self::Postgres { place, .. } => place.lost_until().await,
            Self::Mysql { .. } | Self::Sqlite { .. } => None,
        }
    }

    /// Ends the database's side of a connection of some server's: one that commits, if there is one.
    pub(crate) async fn terminate_one(&self) -> Outcome {
        match self {
            Self::Postgres { pool, .. } => {
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE datname = current_database() AND pid <> pg_backend_pid() \
                     ORDER BY (state = 'active' AND starts_with(query, 'COMMIT')) DESC, random() \
                     LIMIT 1";
                sqlx::query(sql).execute(pool).await?;
            }
            Self::Mysql { pool, .. } => {
                let sql = "SELECT CAST(id AS signed) FROM information_schema.processlist \
                     WHERE db = DATABASE() AND id <> CONNECTION_ID() \
                     ORDER BY (info LIKE 'COMMIT%') DESC, rand() LIMIT 1";
                let id: Option<i64> = sqlx::query_scalar(sql).fetch_optional(pool).await?;
                if let Some(id) = id {
                    let kill = AssertSqlSafe(format!("KILL {id}"));
                    sqlx::raw_sql(kill).execute(pool).await?;
                }
            }
            Self::Sqlite { .. } => {}
        }
        Ok(())
    }

    /// Holds the write lock of a SQLite file, from a process that is none of the servers.
    pub(crate) async fn hold_write_lock(&self, time: Duration) -> Outcome {
        if let Self::Sqlite { file, .. } = self {
            let mut conn = SqliteConnection::connect_with(&sqlite_options(&file.url())?).await?;
            sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut conn).await?;
            sleep(time).await;
            sqlx::raw_sql("ROLLBACK").execute(&mut conn).await?;
            conn.close().await?;
        }
        Ok(())
    }

    /// How many records are claimed.
    pub(crate) async fn claimed(&self) -> Outcome<i64> {
        Ok(match self {
            Self::Postgres { pool, .. } => Postgres::claimed(pool).await?,
            Self::Mysql { pool, .. } => MySql::claimed(pool).await?,
            Self::Sqlite { pool, .. } => Sqlite::claimed(pool).await?,
        })
    }

    /// The tables, once nothing is claimed and nobody is in a transaction any more, or some time
    /// after that should be so.
    pub(crate) async fn read_when_quiet(&self) -> Outcome<Tables> {
        let deadline = Instant::now() + AFTERMATH;
        loop {
            let claimed = self.claimed().await?;
            let idle = match self {
                Self::Postgres { place, .. } => idle_in_transaction(place.url()).await,
                Self::Mysql { servers, .. } => servers.lock().await.idle_in_transaction().await?,
                Self::Sqlite { .. } => 0,
            };
            if claimed + idle == 0 || Instant::now() >= deadline {
                let tables = match self {
                    Self::Postgres { pool, .. } => Postgres::read(pool).await?,
                    Self::Mysql { pool, .. } => MySql::read(pool).await?,
                    Self::Sqlite { pool, .. } => Sqlite::read(pool).await?,
                };
                return Ok(Tables { idle, ..tables });
            }
            // No event tells of it.
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn stop(self) -> Outcome {
        match self {
            Self::Postgres { place, pool } => {
                pool.close().await;
                place.stop().await;
            }
            Self::Mysql { servers, pool, .. } => {
                pool.close().await;
                servers.into_inner().stop().await;
            }
            Self::Sqlite { pool, .. } => pool.close().await,
        }
        Ok(())
    }
}

/// A URL with its host and port replaced.
pub(super) fn via(url: &Url, proxy: SocketAddr) -> String {
    let mut url = url.clone();
    // A URL with a host takes both.
    let _ = url.set_ip_host(proxy.ip());
    let _ = url.set_port(Some(proxy.port()));
    url.into()
}

async fn make<D: Effects>(pool: &Pool<D>) -> Outcome {
    migrate(pool).await?;
    D::make_tables(pool).await?;
    Ok(())
}
