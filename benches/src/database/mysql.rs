//! MariaDB, on a server of its own that writes to disk as in production.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, Pool, SqlStr};
use test_support::{MariadbBinaries, MariadbServer};
use tower_idempotency::{SqlxStore, migrate};

use super::{BenchDb, look_then_insert, statements};

/// A running server.
#[derive(Debug)]
pub struct MariadbEngine {
    server: MariadbServer,
    databases: AtomicU32,
}

impl MariadbEngine {
    /// Starts a server. Blocks for about five seconds.
    #[must_use]
    pub fn start() -> Self {
        // As they are by default, which tests do without.
        let settings = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("innodb_buffer_pool_size", "512M"),
            ("innodb_log_file_size", "512M"),
        ];
        let server = MariadbBinaries::find()
            .and_then(|binaries| MariadbServer::start_with(&binaries, &settings))
            .unwrap_or_else(|error| panic!("{error}"));
        Self {
            server,
            databases: AtomicU32::new(0),
        }
    }
}

impl BenchDb for MySql {
    const TITLE: &'static str = "MariaDB";

    const TIDY: &'static [&'static str] = &["ANALYZE TABLE tower_idempotency_record"];

    const PACK: &'static [&'static str] = &["OPTIMIZE TABLE tower_idempotency_record"];

    const PROOF: Option<&'static str> = Some("RELEASE SAVEPOINT claim");

    type Engine = MariadbEngine;

    async fn database(engine: &MariadbEngine, connections: u32) -> Pool<Self> {
        let url = engine.server.url();
        let mut admin = MySqlConnection::connect(&url).await.expect("a connection");
        let number = engine.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench_{number}");
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(create)
            .execute(&mut admin)
            .await
            .expect("a database");
        admin.close().await.expect("a connection");
        let options: MySqlConnectOptions = url.parse().expect("a URL");
        let pool = MySqlPoolOptions::new()
            .max_connections(connections)
            .min_connections(connections)
            .test_before_acquire(false)
            .connect_with(options.database(&name))
            .await
            .expect("a pool");
        migrate(&pool).await.expect("the table of records");
        sqlx::raw_sql(
            "CREATE TABLE post (id BIGINT AUTO_INCREMENT PRIMARY KEY, author VARCHAR(255) NOT NULL, \
                 title VARCHAR(255) NOT NULL, text LONGTEXT NOT NULL); \
             CREATE TABLE reply (`key` VARCHAR(255) PRIMARY KEY, body LONGBLOB NOT NULL)",
        )
        .execute(&pool)
        .await
        .expect("the tables");
        pool
    }

    fn relaxed(_: SqlxStore<Self>) -> Option<SqlxStore<Self>> {
        None
    }

    statements! {
        insert: "INSERT INTO post (author, title, text) VALUES (?, ?, ?) RETURNING id",
        complete: "UPDATE tower_idempotency_record SET state = 'completed', status = ?, kept = TRUE, \
                 headers = ?, body = ?, completed_at = UTC_TIMESTAMP(3) \
             WHERE owner = ? AND operation = 'publish' AND `key` = ? AND claim_token = ? \
                 AND state = 'claimed'",
        keep: "INSERT INTO reply (`key`, body) VALUES (?, ?)",
        kept: "SELECT body FROM reply WHERE `key` = ?"
    }

    look_then_insert! {
        look: "SELECT CAST(state AS CHAR), CAST(fingerprint AS CHAR), CAST(status AS SIGNED), body \
             FROM tower_idempotency_record \
             WHERE owner = ? AND operation = 'publish' AND `key` = ?",
        insert: "INSERT INTO tower_idempotency_record \
                 (owner, operation, `key`, state, claim_token, claimed_at, stale_at, fingerprint) \
             VALUES (?, 'publish', ?, 'claimed', ?, UTC_TIMESTAMP(3), \
                 UTC_TIMESTAMP(3) + INTERVAL 5 MINUTE, ?)"
    }

    fn hand_begin(_: &str) -> SqlStr {
        SqlStr::from_static("START TRANSACTION; SAVEPOINT claim")
    }

    async fn size_of_records(pool: &Pool<Self>) -> i64 {
        Self::number(
            pool,
            "SELECT CAST(data_length + index_length AS SIGNED) FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = 'tower_idempotency_record'",
        )
        .await
    }
}
