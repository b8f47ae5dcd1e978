//! What is done with the server's own database.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Error};
use tokio::time::timeout;

use crate::place::timed_out;

/// A connection to a server's own database, from which others are created and dropped.
pub struct Admin {
    connection: PgConnection,
}

impl Admin {
    /// Connects within ten seconds.
    ///
    /// # Errors
    ///
    /// The server cannot be reached or does not let us in.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let connection = timeout(Duration::from_secs(10), PgConnection::connect(url))
            .await
            .map_err(|_| timed_out())??;
        Ok(Self { connection })
    }

    /// The version of the server.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub async fn version(&mut self) -> Result<String, Error> {
        sqlx::query_scalar("SELECT current_setting('server_version')")
            .fetch_one(&mut self.connection)
            .await
    }

    /// Creates a database. Its name is one of ours, and needs no quoting.
    pub(super) async fn create(&mut self, name: &str) -> Result<(), Error> {
        // Nobody can be connected to template0, which would forbid copying it.
        let sql = format!("CREATE DATABASE {name} TEMPLATE template0");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    /// Drops a database, and ends the connections to it.
    pub(super) async fn drop(&mut self, name: &str) -> Result<(), Error> {
        let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    /// Drops all databases with names of this prefix, which [`run_prefix`](crate::run_prefix)
    /// made. Returns their number.
    ///
    /// # Errors
    ///
    /// One of them cannot be dropped; those after it are then left.
    pub async fn drop_all(&mut self, prefix: &str) -> Result<usize, Error> {
        let names: Vec<String> = sqlx::query_scalar(
            "SELECT datname::text FROM pg_database WHERE starts_with(datname::text, $1)",
        )
        .bind(prefix)
        .fetch_all(&mut self.connection)
        .await?;
        for name in &names {
            self.drop(name).await?;
        }
        Ok(names.len())
    }

    /// The first folder in which the server has a unix socket, if we may know and it is here.
    pub(super) async fn socket_folder(&mut self, address: SocketAddr) -> Option<String> {
        let folders: String =
            sqlx::query_scalar("SELECT current_setting('unix_socket_directories')")
                .fetch_one(&mut self.connection)
                .await
                .ok()?;
        let folder = folders.split(',').next()?.trim();
        let socket = format!("{folder}/.s.PGSQL.{}", address.port());
        (address.ip().is_loopback() && std::fs::exists(socket).ok()?).then(|| folder.to_owned())
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
