//! PostgreSQL, on a server of its own that writes to disk as in production.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool, Pool, Postgres, SqlSafeStr as _, SqlStr,
};
use test_support::{Binaries, PostgresServer, ServerSettings};
use tower_idempotency::{SqlxStore, migrate};

use super::{BenchDb, Found, HandClaim, found, statements};

/// A running server, and how to get to it.
#[derive(Debug)]
pub struct PostgresEngine {
    server: PostgresServer,
    databases: AtomicU32,
    /// Whether the pools ping a connection before it is used.
    pub pings: bool,
}

impl PostgresEngine {
    /// Starts a server. Blocks for about a second.
    #[must_use]
    pub fn start() -> Self {
        let settings = ServerSettings::default()
            .durable()
            .set("shared_buffers", "512MB")
            .set("max_wal_size", "8GB")
            .set("checkpoint_timeout", "30min")
            // It would run in the one half of a pair and not in the other.
            .set("autovacuum_naptime", "1h");
        let server = Binaries::find()
            .and_then(|binaries| PostgresServer::start_with(&binaries, &settings))
            .unwrap_or_else(|error| panic!("{error}"));
        Self {
            server,
            databases: AtomicU32::new(0),
            pings: false,
        }
    }

    /// The server.
    pub fn server(&self) -> &PostgresServer {
        &self.server
    }

    /// Makes an empty database, and the way to it by unix socket.
    pub async fn create(&self) -> PgConnectOptions {
        let options: PgConnectOptions = self.server.url().parse().expect("a URL");
        let options = options.socket(self.server.folder());
        let name = format!("bench_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut admin = PgConnection::connect_with(&options)
            .await
            .expect("a connection");
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(create)
            .execute(&mut admin)
            .await
            .expect("a database");
        admin.close().await.expect("a connection");
        options.database(&name)
    }

    /// The way to a database through a proxy.
    pub fn via(&self, database: &PgConnectOptions, proxy: SocketAddr) -> PgConnectOptions {
        let options: PgConnectOptions = self.server.url().parse().expect("a URL");
        options
            .database(database.get_database().unwrap_or_default())
            .host(&proxy.ip().to_string())
            .port(proxy.port())
    }

    /// A pool, and the tables.
    pub async fn pool(&self, options: PgConnectOptions, connections: u32) -> PgPool {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .min_connections(connections)
            .test_before_acquire(self.pings)
            .connect_with(options)
            .await
            .expect("a pool");
        migrate(&pool).await.expect("the table of records");
        sqlx::raw_sql(
            "CREATE TABLE IF NOT EXISTS post (id bigserial PRIMARY KEY, author text NOT NULL, \
                 title text NOT NULL, text text NOT NULL); \
             CREATE TABLE IF NOT EXISTS reply (key text PRIMARY KEY, body bytea NOT NULL)",
        )
        .execute(&pool)
        .await
        .expect("the tables");
        pool
    }
}

impl BenchDb for Postgres {
    const TITLE: &'static str = "PostgreSQL";

    const TIDY: &'static [&'static str] = &["VACUUM tower_idempotency.record"];

    const PACK: &'static [&'static str] = &["VACUUM FULL tower_idempotency.record"];

    const PROOF: Option<&'static str> = None;

    type Engine = PostgresEngine;

    async fn database(engine: &PostgresEngine, connections: u32) -> Pool<Self> {
        let options = engine.create().await;
        engine.pool(options, connections).await
    }

    fn relaxed(store: SqlxStore<Self>) -> Option<SqlxStore<Self>> {
        Some(store.relaxed_claims())
    }

    statements! {
        insert: "INSERT INTO post (author, title, text) VALUES ($1, $2, $3) RETURNING id",
        complete: "UPDATE tower_idempotency.record SET state = 'completed', status = $1, kept = true, \
                 headers = $2, body = $3, completed_at = clock_timestamp() \
             WHERE owner = $4 AND operation = 'publish' AND key = $5 AND claim_token = $6 \
                 AND state = 'claimed' \
                 AND current_setting('tower_idempotency.claim', true) = encode($6, 'hex')",
        keep: "INSERT INTO reply (key, body) VALUES ($1, $2)",
        kept: "SELECT body FROM reply WHERE key = $1"
    }

    async fn hand_claim(conn: &mut PgConnection, claim: &HandClaim<'_>) -> sqlx::Result<Found> {
        const SQL: &str = "WITH patience AS MATERIALIZED (\
                 SELECT set_config('lock_timeout', '200ms', true) AS lock_timeout\
             ), seen AS MATERIALIZED (\
                 SELECT state, fingerprint, status::bigint, body FROM tower_idempotency.record \
                 WHERE owner = $1 AND operation = 'publish' AND key = $2 \
                     AND current_setting('transaction_isolation') <> 'serializable'\
             ), claimed AS (\
                 INSERT INTO tower_idempotency.record \
                     (owner, operation, key, state, claim_token, claimed_at, stale_at, fingerprint) \
                 SELECT $1, 'publish', $2, 'claimed', $3, now(), now() + interval '5 minutes', $4 \
                 FROM patience WHERE NOT EXISTS (SELECT FROM seen) AND lock_timeout IS NOT NULL \
                 ON CONFLICT ON CONSTRAINT record_pkey DO NOTHING \
                 RETURNING fingerprint\
             ) \
             SELECT 'acquired', fingerprint, NULL::bigint, NULL::bytea FROM claimed \
             UNION ALL SELECT * FROM seen";
        // Again where an insert that this snapshot does not see was first.
        loop {
            let row = sqlx::query(SQL)
                .bind(claim.owner)
                .bind(claim.key)
                .bind(&claim.token[..])
                .bind(claim.fingerprint)
                .fetch_optional(&mut *conn)
                .await?;
            if let Some(row) = row {
                return Ok(found!(row, claim));
            }
        }
    }

    fn hand_begin(token: &str) -> SqlStr {
        let sql = format!("BEGIN; SET LOCAL tower_idempotency.claim = '{token}'");
        AssertSqlSafe(sql).into_sql_str()
    }

    async fn size_of_records(pool: &Pool<Self>) -> i64 {
        Self::number(
            pool,
            "SELECT pg_total_relation_size('tower_idempotency.record')",
        )
        .await
    }
}
