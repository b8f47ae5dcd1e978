//! A database of its own for each test.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use sqlx::mysql::MySqlPoolOptions;
use sqlx::pool::PoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, MySql, Pool, Postgres, SqlSafeStr as _, SqlStr, Sqlite};
use test_support::{
    MysqlDatabase, Proxy, SqliteDatabase, TestDatabase, mysql_database, postgres_database,
    sqlite_database,
};
use tower_idempotency::{Dialect, IdempotencyLayer, SqlxStore, migrate};

/// A database that tests run on.
pub trait TestDb: Dialect {
    /// The table of records, `{records}` in the statements below.
    const RECORDS: &'static str;

    /// Whether placeholders have numbers, as they do in the statements below.
    const NUMBERED: bool;

    /// What keeps the database in being.
    type Database: Send + Sync;

    /// Makes a fresh one.
    fn database() -> impl Future<Output = Self::Database> + Send;

    /// Connects to it. Nobody waits for a connection for longer than 5 seconds.
    fn connect(
        database: &Self::Database,
        connections: u32,
    ) -> impl Future<Output = Pool<Self>> + Send;

    /// Fails where a connection was left inside of a transaction.
    fn assert_none_idle(database: &Self::Database) -> impl Future<Output = ()> + Send;

    /// Runs statements that the tests wrote.
    fn run(
        conn: &mut Self::Connection,
        sql: &'static str,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Adds an effect.
    fn insert(
        conn: &mut Self::Connection,
        note: &str,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Moves all times of all records back.
    fn age(pool: &Pool<Self>, ms: i64) -> impl Future<Output = ()> + Send;

    /// Reads one number.
    fn count(pool: &Pool<Self>, sql: &'static str, note: &str) -> impl Future<Output = i64> + Send;
}

/// A database behind a connection, which can break.
pub trait ServerDb: TestDb {
    /// Where its server listens.
    fn address(database: &Self::Database) -> SocketAddr;

    /// Connects through a proxy.
    fn connect_via(
        database: &Self::Database,
        proxy: &Proxy,
        options: PoolOptions<Self>,
    ) -> impl Future<Output = Pool<Self>> + Send;
}

macro_rules! server_db {
    ($db:ty) => {
        impl ServerDb for $db {
            fn address(database: &Self::Database) -> SocketAddr {
                database.address()
            }

            async fn connect_via(
                database: &Self::Database,
                proxy: &Proxy,
                options: PoolOptions<Self>,
            ) -> Pool<Self> {
                let url = database.url_via(proxy.address());
                options.connect(&url).await.expect("the server answers")
            }
        }
    };
}

server_db!(Postgres);
server_db!(MySql);

const PATIENCE: Duration = Duration::from_secs(5);

/// A statement as the database wants it.
fn written<D: TestDb>(sql: &'static str) -> SqlStr {
    let sql = sql.replace("{records}", D::RECORDS);
    let pieces = sql.split('$').enumerate().map(|(at, piece)| match at {
        0 => piece.to_owned(),
        _ if D::NUMBERED => format!("${piece}"),
        _ => piece.replacen(|c: char| c.is_ascii_digit(), "?", 1),
    });
    AssertSqlSafe(pieces.collect::<String>()).into_sql_str()
}

macro_rules! statements {
    ($age:literal) => {
        async fn age(pool: &Pool<Self>, ms: i64) {
            sqlx::query(written::<Self>(concat!("UPDATE {records} SET ", $age)))
                .bind(ms)
                .bind(ms)
                .bind(ms)
                .bind(ms)
                .execute(pool)
                .await
                .expect("the records age");
        }

        async fn run(conn: &mut Self::Connection, sql: &'static str) -> sqlx::Result<()> {
            sqlx::raw_sql(written::<Self>(sql))
                .execute(conn)
                .await
                .map(drop)
        }

        async fn insert(conn: &mut Self::Connection, note: &str) -> sqlx::Result<()> {
            let sql = "INSERT INTO effect (note) VALUES ($1)";
            sqlx::query(written::<Self>(sql))
                .bind(note)
                .execute(conn)
                .await
                .map(drop)
        }

        async fn count(pool: &Pool<Self>, sql: &'static str, note: &str) -> i64 {
            sqlx::query_scalar(written::<Self>(sql))
                .bind(note)
                .fetch_one(pool)
                .await
                .expect("the database answers")
        }
    };
}

impl TestDb for Sqlite {
    const RECORDS: &'static str = "tower_idempotency_record";
    const NUMBERED: bool = true;
    type Database = SqliteDatabase;

    async fn database() -> SqliteDatabase {
        sqlite_database()
    }

    async fn connect(database: &SqliteDatabase, connections: u32) -> Pool<Self> {
        let options: SqliteConnectOptions = database.url().parse().expect("a URL");
        let options = options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(PATIENCE);
        pool.connect_with(options)
            .await
            .expect("SQLite opens a file")
    }

    /// SQLite has no list of connections: a new writer would find the lock taken.
    async fn assert_none_idle(database: &SqliteDatabase) {
        let pool = Self::connect(database, 1).await;
        let writer = pool
            .begin_with("BEGIN IMMEDIATE")
            .await
            .expect("the write lock is free");
        writer.rollback().await.expect("a roll-back");
    }

    statements!(
        "claimed_at = claimed_at - $1, stale_at = stale_at - $2, \
         completed_at = completed_at - $3, expires_at = expires_at - $4"
    );
}

impl TestDb for Postgres {
    const RECORDS: &'static str = "tower_idempotency.record";
    const NUMBERED: bool = true;
    type Database = TestDatabase;

    async fn database() -> TestDatabase {
        postgres_database().await
    }

    async fn connect(database: &TestDatabase, connections: u32) -> Pool<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(PATIENCE);
        pool.connect(database.url())
            .await
            .expect("PostgreSQL answers")
    }

    async fn assert_none_idle(database: &TestDatabase) {
        database.assert_none_idle_in_transaction().await;
    }

    statements!(
        "claimed_at = claimed_at - $1 * interval '1 ms', \
         stale_at = stale_at - $2 * interval '1 ms', \
         completed_at = completed_at - $3 * interval '1 ms', \
         expires_at = expires_at - $4 * interval '1 ms'"
    );
}

impl TestDb for MySql {
    const RECORDS: &'static str = "tower_idempotency_record";
    const NUMBERED: bool = false;
    type Database = MysqlDatabase;

    async fn database() -> MysqlDatabase {
        mysql_database().await
    }

    async fn connect(database: &MysqlDatabase, connections: u32) -> Pool<Self> {
        let pool = MySqlPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(PATIENCE);
        pool.connect(database.url()).await.expect("MySQL answers")
    }

    async fn assert_none_idle(database: &MysqlDatabase) {
        database.assert_none_idle_in_transaction().await;
    }

    statements!(
        "claimed_at = claimed_at - INTERVAL $1 / 1000 SECOND, \
         stale_at = stale_at - INTERVAL $2 / 1000 SECOND, \
         completed_at = completed_at - INTERVAL $3 / 1000 SECOND, \
         expires_at = expires_at - INTERVAL $4 / 1000 SECOND"
    );
}

/// A fresh database with the table of records, a table of effects, and a pool.
#[derive(Debug)]
pub struct World<D: TestDb> {
    /// What the server under test uses.
    pub pool: Pool<D>,
    watch: Pool<D>,
    /// The database itself.
    pub database: D::Database,
}

impl<D: TestDb> World<D> {
    /// With a pool of 10.
    pub async fn new() -> Self {
        Self::with_connections(10).await
    }

    /// With a pool of so many.
    ///
    /// # Panics
    ///
    /// The database is broken.
    pub async fn with_connections(connections: u32) -> Self {
        let database = D::database().await;
        let watch = D::connect(&database, 2).await;
        let pool = D::connect(&database, connections).await;
        Self {
            pool,
            ..Self::over(database, watch).await
        }
    }

    /// With a pool of the test's own, through which the test looks too.
    ///
    /// # Panics
    ///
    /// The database is broken.
    pub async fn over(database: D::Database, pool: Pool<D>) -> Self {
        migrate(&pool).await.expect("the table is made");
        let mut conn = pool.acquire().await.expect("a connection");
        let table = "CREATE TABLE effect (note text NOT NULL)";
        D::run(&mut conn, table)
            .await
            .expect("the table of effects is made");
        drop(conn);
        Self {
            watch: pool.clone(),
            pool,
            database,
        }
    }

    /// A layer over the pool.
    pub fn layer(&self) -> IdempotencyLayer<SqlxStore<D>> {
        IdempotencyLayer::new(self.pool.clone())
    }

    /// Lets time pass for all records.
    ///
    /// # Panics
    ///
    /// It is more than fits.
    pub async fn age(&self, by: Duration) {
        D::age(
            &self.watch,
            i64::try_from(by.as_millis()).expect("milliseconds"),
        )
        .await;
    }

    /// How many effects of that note are committed.
    pub async fn effects(&self, note: &str) -> i64 {
        D::count(
            &self.watch,
            "SELECT count(*) FROM effect WHERE note = $1",
            note,
        )
        .await
    }

    /// How many effects are committed.
    pub async fn all_effects(&self) -> i64 {
        let sql = "SELECT count(*) FROM effect WHERE note <> $1";
        D::count(&self.watch, sql, "").await
    }

    /// How many records of that key are in that state.
    pub async fn records(&self, key: &str, state: &str) -> i64 {
        let sql = "SELECT count(*) FROM {records} AS r WHERE r.key || ' ' || state = $1";
        D::count(&self.watch, sql, &format!("{key} {state}")).await
    }

    /// Ends the test: nothing may be left inside of a transaction.
    pub async fn end(self) {
        D::assert_none_idle(&self.database).await;
        self.pool.close().await;
        self.watch.close().await;
    }
}
