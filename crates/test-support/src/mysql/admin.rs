//! What is done with the server itself.

use std::fmt;
use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _, Error};
use tokio::time::{sleep, timeout};

use crate::place::timed_out;

/// A connection to a server, from which databases are created and dropped.
pub struct MysqlAdmin {
    connection: MySqlConnection,
}

impl MysqlAdmin {
    /// Connects within ten seconds.
    ///
    /// # Errors
    ///
    /// The server cannot be reached or does not let us in.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let connection = timeout(Duration::from_secs(10), MySqlConnection::connect(url))
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
        sqlx::query_scalar("SELECT version()")
            .fetch_one(&mut self.connection)
            .await
    }

    async fn run(&mut self, sql: String) -> Result<(), Error> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await;
        done.map(drop)
    }

    /// Creates a database. Its name is one of ours, and needs no quoting.
    pub(super) async fn create(&mut self, name: &str) -> Result<(), Error> {
        self.run(format!("CREATE DATABASE {name}")).await
    }

    /// Drops a database, and ends the connections to it: a transaction would keep its tables.
    pub(super) async fn drop(&mut self, name: &str) -> Result<(), Error> {
        let connected: Vec<i64> = sqlx::query_scalar(
            "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
             WHERE db = ? AND id <> connection_id()",
        )
        .bind(name)
        .fetch_all(&mut self.connection)
        .await?;
        for id in connected {
            // It may be gone by now.
            self.run(format!("KILL CONNECTION {id}")).await.ok();
        }
        self.run(format!("DROP DATABASE IF EXISTS {name}")).await
    }

    /// Drops all databases with names of this prefix, which [`run_prefix`](crate::run_prefix)
    /// made. Returns their number.
    ///
    /// # Errors
    ///
    /// One of them cannot be dropped; those after it are then left.
    pub async fn drop_all(&mut self, prefix: &str) -> Result<usize, Error> {
        let names: Vec<Vec<u8>> = sqlx::query_scalar(
            "SELECT CAST(schema_name AS BINARY) FROM information_schema.schemata \
             WHERE LEFT(schema_name, LENGTH(?)) = ?",
        )
        .bind(prefix)
        .bind(prefix)
        .fetch_all(&mut self.connection)
        .await?;
        for name in &names {
            self.drop(&String::from_utf8_lossy(name)).await?;
        }
        Ok(names.len())
    }

    /// Counts the connections to a database that are idle in a transaction which has read or
    /// written something.
    pub(super) async fn idle_in_transaction(&mut self, name: &str) -> Result<i64, Error> {
        // What the server shows of its transactions may be a tenth of a second old.
        sleep(Duration::from_millis(110)).await;
        sqlx::query_scalar(
            "SELECT count(*) FROM information_schema.innodb_trx AS t \
             JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id \
             WHERE p.db = ? AND p.command = 'Sleep'",
        )
        .bind(name)
        .fetch_one(&mut self.connection)
        .await
    }
}

impl fmt::Debug for MysqlAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlAdmin").finish_non_exhaustive()
    }
}
