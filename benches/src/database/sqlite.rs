//! SQLite: a file in WAL mode.

use std::path::PathBuf;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Pool, SqlStr, Sqlite};
use test_support::SqliteDatabase;
use tower_idempotency::{SqlxStore, migrate};

use super::{BenchDb, look_then_insert, statements};

impl BenchDb for Sqlite {
    const TITLE: &'static str = "SQLite";

    const TIDY: &'static [&'static str] = &["PRAGMA wal_checkpoint(TRUNCATE)"];

    const PACK: &'static [&'static str] = &["VACUUM"];

    const PROOF: Option<&'static str> = Some("RELEASE SAVEPOINT claim");

    type Engine = SqliteDatabase;

    async fn database(engine: &SqliteDatabase, connections: u32) -> Pool<Self> {
        let path: PathBuf = engine.path().into();
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            // As is usual with WAL.
            .synchronous(SqliteSynchronous::Normal);
        let pool = SqlitePoolOptions::new()
            .max_connections(connections)
            .test_before_acquire(false)
            .connect_with(options)
            .await
            .expect("SQLite opens a file");
        migrate(&pool).await.expect("the table of records");
        sqlx::raw_sql(
            "CREATE TABLE IF NOT EXISTS post (id INTEGER PRIMARY KEY, author TEXT NOT NULL, \
                 title TEXT NOT NULL, text TEXT NOT NULL); \
             CREATE TABLE IF NOT EXISTS reply (key TEXT PRIMARY KEY, body BLOB NOT NULL)",
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
        insert: "INSERT INTO post (author, title, text) VALUES (?1, ?2, ?3) RETURNING id",
        complete: "UPDATE tower_idempotency_record SET state = 'completed', status = ?1, kept = 1, \
                 headers = ?2, body = ?3, \
                 completed_at = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) \
             WHERE owner = ?4 AND operation = 'publish' AND key = ?5 AND claim_token = ?6 \
                 AND state = 'claimed'",
        keep: "INSERT INTO reply (key, body) VALUES (?1, ?2)",
        kept: "SELECT body FROM reply WHERE key = ?1"
    }

    look_then_insert! {
        look: "SELECT state, fingerprint, status, body FROM tower_idempotency_record \
             WHERE owner = ?1 AND operation = 'publish' AND key = ?2",
        insert: "INSERT INTO tower_idempotency_record \
                 (owner, operation, key, state, claim_token, claimed_at, stale_at, fingerprint) \
             VALUES (?1, 'publish', ?2, 'claimed', ?3, \
                 CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), \
                 CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) + 300000, ?4)"
    }

    fn hand_begin(_: &str) -> SqlStr {
        SqlStr::from_static("BEGIN IMMEDIATE; SAVEPOINT claim")
    }

    async fn size_of_records(pool: &Pool<Self>) -> i64 {
        Self::number(
            pool,
            "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name IN (\
                 SELECT name FROM sqlite_schema WHERE tbl_name = 'tower_idempotency_record')",
        )
        .await
    }
}
