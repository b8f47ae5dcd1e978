//! Looking at a database before it is relied on.

use std::time::Duration;

use axum::http::StatusCode;
use end_to_end::{Client, Server, TestDb, World, effects_app, on_every_database, on_every_server};
use serde_json::json;
use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{AssertSqlSafe, MySql, PgPool, Postgres, Sqlite};
use test_support::{Direction, Proxy, Traffic};
use tower_idempotency::{
    Finding, IdempotencyLayer, Severity, SqlxStore, Store as _, harden, migrate,
};

async fn findings<D: TestDb>(pool: &sqlx::Pool<D>) -> Vec<Finding> {
    SqlxStore::new(pool.clone())
        .check()
        .await
        .expect("the database can be asked")
}

/// Whether there is exactly one finding that mentions all of that.
fn one(findings: &[Finding], severity: Severity, words: &[&str]) -> bool {
    let said = |finding: &&Finding| {
        let text = finding.to_string();
        finding.severity == severity && words.iter().all(|word| text.contains(word))
    };
    findings.iter().filter(said).count() == 1
}

on_every_database! {
    /// The check finds nothing to say of a good database but that tests do not wait for disks,
    /// and says what to do where the table is missing or not as it should be.
    async fn the_check_sees_the_table<D>() {
        let world = World::<D>::new().await;
        let good = findings(&world.pool).await;
        let settings = ["fsync", "flush_log", "lock_wait"];
        let impatient =
            |finding: &Finding| settings.iter().any(|name| finding.what.contains(name));
        assert!(good.iter().all(impatient), "{good:?}");

        let mut conn = world.pool.acquire().await.unwrap();
        let rename = "ALTER TABLE {records} RENAME COLUMN kept TO held";
        D::run(&mut conn, rename).await.unwrap();
        assert!(one(&findings(&world.pool).await, Severity::Error, &["lacks kept", "migrate(&pool)"]));
        D::run(&mut conn, "DROP TABLE {records}").await.unwrap();
        assert!(one(&findings(&world.pool).await, Severity::Error, &["is missing", "migrate(&pool)"]));
        drop(conn);
        world.end().await;
    }
}

/// On PostgreSQL the check sees the key, the isolation, a proxy in between, and a read-only
/// server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_check_sees_the_server() {
    let world = World::<Postgres>::new().await;
    let run = async |sql: &'static str| {
        let mut conn = world.pool.acquire().await.unwrap();
        Postgres::run(&mut conn, sql).await.unwrap();
    };
    run("ALTER TABLE tower_idempotency.record DROP CONSTRAINT record_pkey").await;
    assert!(one(
        &findings(&world.pool).await,
        Severity::Error,
        &["primary key"]
    ));

    let set = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); \
               EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$";
    run(set).await;
    let proxy = Proxy::start(world.database.address()).await;
    let pool = PgPool::connect(&world.database.url_via(proxy.address()))
        .await
        .unwrap();
    let found = findings(&pool).await;
    assert!(
        one(&found, Severity::Warning, &["serializable"]),
        "{found:?}"
    );
    assert!(
        one(&found, Severity::Warning, &["proxy or pooler", "PgBouncer"]),
        "{found:?}"
    );
    assert!(one(&found, Severity::Error, &["read-only"]), "{found:?}");
    pool.close().await;
}

/// On MySQL and MariaDB the check sees the key's type and tables that cannot roll back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_check_sees_what_cannot_roll_back() {
    let world = World::<MySql>::new().await;
    let run = async |sql: &'static str| {
        let mut conn = world.pool.acquire().await.unwrap();
        MySql::run(&mut conn, sql).await.unwrap();
    };
    run("CREATE TABLE old (n int) ENGINE = MyISAM").await;
    run("ALTER TABLE {records} MODIFY COLUMN owner VARCHAR(255) NOT NULL").await;
    let found = findings(&world.pool).await;
    assert!(
        one(&found, Severity::Error, &["old is MyISAM", "InnoDB"]),
        "{found:?}"
    );
    assert!(
        one(&found, Severity::Error, &["owner", "not VARBINARY"]),
        "{found:?}"
    );
    run("ALTER TABLE {records} DROP PRIMARY KEY").await;
    let found = findings(&world.pool).await;
    assert!(one(&found, Severity::Error, &["primary key"]), "{found:?}");
    world.end().await;
}

/// On SQLite the check sees the journal, the busy time-out, and a database that each connection
/// has of its own.
#[tokio::test]
async fn the_check_sees_the_file() {
    let database = Sqlite::database().await;
    let rollback = SqlitePoolOptions::new()
        .connect(&database.url())
        .await
        .unwrap();
    migrate(&rollback).await.unwrap();
    assert!(one(
        &findings(&rollback).await,
        Severity::Warning,
        &["journal mode is delete", "Wal"]
    ));

    let options: sqlx::sqlite::SqliteConnectOptions = database.url().parse().unwrap();
    let options = options.busy_timeout(Duration::ZERO);
    let impatient = SqlitePoolOptions::new()
        .connect_with(options)
        .await
        .unwrap();
    assert!(one(
        &findings(&impatient).await,
        Severity::Warning,
        &["busy time-out is 0 ms"]
    ));

    let memory = SqlitePoolOptions::new()
        .max_connections(2)
        .connect("sqlite::memory:")
        .await
        .unwrap();
    assert!(one(
        &findings(&memory).await,
        Severity::Error,
        &["in memory"]
    ));
}

on_every_server! {
    /// A pool that was hardened does not hand out a connection that a cancelled `begin` left inside
    /// of a transaction, on which a claim would look won and be none. Where the other pool does not
    /// either, sqlx has mended it, and `harden` may go.
    async fn a_hardened_pool_has_no_poisoned_connection<D>() {
        let world = World::<D>::new().await;
        let proxy = Proxy::start(D::address(&world.database)).await;
        let poisoned = async |options: PoolOptions<D>| {
            let options = options.max_connections(1).test_before_acquire(false);
            let pool = D::connect_via(&world.database, &proxy, options).await;
            let answers = |traffic| proxy.set(Direction::ToClient, traffic);
            answers(Traffic::Delay(Duration::from_millis(400)));
            let begun = tokio::time::timeout(Duration::from_millis(200), pool.begin()).await;
            assert!(begun.is_err(), "cancelled while BEGIN is under way");
            answers(Traffic::Pass);
            // Whatever the pool hands out now: is it inside of the transaction that was begun?
            tokio::time::sleep(Duration::from_millis(600)).await;
            let mut conn = pool.acquire().await.unwrap();
            D::insert(&mut conn, "x").await.unwrap();
            let poisoned = world.effects("x").await == 0;
            D::run(&mut conn, "ROLLBACK").await.unwrap();
            drop(conn);
            pool.close().await;
            poisoned
        };
        assert!(!poisoned(harden(PoolOptions::new())).await);
        let mut conn = world.pool.acquire().await.unwrap();
        D::run(&mut conn, "DELETE FROM effect").await.unwrap();
        drop(conn);
        assert!(
            poisoned(PoolOptions::new()).await,
            "there is something to harden against"
        );
        world.end().await;
    }
}

/// docs/deployment.md: these rights are all that an application's role needs, whatever was taken from
/// everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_rights_are_enough() {
    let world = World::<Postgres>::new().await;
    // A server has its roles for all databases.
    let role = format!("app_of_{}", world.database.name());
    for sql in [
        "CREATE ROLE $app LOGIN",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO $app",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO $app",
        "REVOKE ALL ON FUNCTION tower_idempotency.is_whole FROM PUBLIC",
        "GRANT USAGE ON SCHEMA tower_idempotency TO $app",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON tower_idempotency.record TO $app",
        "GRANT EXECUTE ON FUNCTION tower_idempotency.is_whole TO $app",
    ] {
        let sql = AssertSqlSafe(sql.replace("$app", &role));
        sqlx::raw_sql(sql)
            .execute(&world.pool)
            .await
            .expect("the rights");
    }
    let options: PgConnectOptions = world.database.url().parse().unwrap();
    let pool = PgPoolOptions::new()
        .connect_with(options.username(&role))
        .await
        .unwrap();
    let store = SqlxStore::new(pool.clone());
    let findings = store.check().await.expect("the role may ask");
    let errors = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error);
    assert_eq!(errors.count(), 0, "{findings:?}");
    let layer = IdempotencyLayer::new(pool.clone());
    let server = Server::start(effects_app(&layer)).await;
    let client = Client::new(&server);
    let act = json!({"note": "x"});
    assert_eq!(
        client.post("/effects", "k", &act).await.status,
        StatusCode::CREATED
    );
    assert!(client.post("/effects", "k", &act).await.is_replay());
    let failing = json!({"note": "x", "answer": 400});
    assert_eq!(
        client.post("/effects", "f", &failing).await.status,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(store.purge(10).await.unwrap(), 0);
    pool.close().await;
    let drop = AssertSqlSafe(format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    sqlx::raw_sql(drop)
        .execute(&world.pool)
        .await
        .expect("the role");
    world.end().await;
}
