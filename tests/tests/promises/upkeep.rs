//! Making the table, and keeping it small.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::StatusCode;
use end_to_end::{Client, Server, TestDb, World, effects_app, on_every_database};
use serde_json::json;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Postgres, SqlSafeStr, Sqlite};
use tokio::task::JoinSet;
use tower_idempotency::{SqlxStore, migrate, sweep};

fn users_own() -> Migrator {
    let sql = "CREATE TABLE users_own (id integer)".into_sql_str();
    // The same version as ours, and the application's own table of migrations.
    Migrator::with_migrations(vec![Migration::new(
        1,
        Cow::Borrowed("users own"),
        MigrationType::Simple,
        sql,
        false,
    )])
}

/// Changes that make a row one that the protocol never writes, once there is a completed one.
macro_rules! breaking {
    ($table:literal) => {
        [
            concat!("UPDATE ", $table, " SET state = 'claimed'"),
            concat!("UPDATE ", $table, " SET state = 'tombstone'"),
            concat!("UPDATE ", $table, " SET state = 'finished'"),
            concat!("UPDATE ", $table, " SET claim_token = NULL"),
            concat!("UPDATE ", $table, " SET fingerprint = NULL"),
            concat!("UPDATE ", $table, " SET status = NULL"),
            concat!("UPDATE ", $table, " SET status = 500"),
            concat!("UPDATE ", $table, " SET kept = NULL"),
            concat!("UPDATE ", $table, " SET kept = (1 = 0)"),
            concat!("UPDATE ", $table, " SET headers = NULL"),
            concat!("UPDATE ", $table, " SET body = NULL"),
            concat!("UPDATE ", $table, " SET completed_at = NULL"),
            concat!("UPDATE ", $table, " SET resource_ref = ''"),
            concat!("UPDATE ", $table, " SET owner = ''"),
            concat!("UPDATE ", $table, " SET operation = ''"),
        ]
    };
}

on_every_database! {
    /// The database itself refuses half-written rows, whoever writes them.
    async fn no_row_is_half_written<D>() {
        let world = World::<D>::new().await;
        let server = Server::start(effects_app(&world.layer())).await;
        let act = json!({"note": "x"});
        let client = Client::new(&server);
        assert_eq!(client.post("/effects", "k", &act).await.status, StatusCode::CREATED);
        let changes = if D::NAME == "PostgreSQL" {
            breaking!("tower_idempotency.record")
        } else {
            breaking!("tower_idempotency_record")
        };
        let mut conn = world.pool.acquire().await.expect("a connection");
        for sql in changes {
            let broken = D::run(&mut conn, sql).await;
            let error = broken.expect_err(sql);
            let refused = error.as_database_error().is_some_and(|error| error.is_check_violation());
            assert!(refused, "{sql}: {error}");
        }
        drop(conn);
        assert!(client.post("/effects", "k", &act).await.is_replay());
        world.end().await;
    }

    /// Any number of processes may make the table at once, on a fresh database and again later.
    async fn migrations_may_race<D>() {
        let database = D::database().await;
        for _ in 0..2 {
            let mut starting = JoinSet::new();
            for _ in 0..6 {
                let pool = D::connect(&database, 1).await;
                starting.spawn(async move { migrate(&pool).await });
            }
            for started in starting.join_all().await {
                started.expect("every process starts");
            }
        }
        D::assert_none_idle(&database).await;
    }

    /// R36, R37: the sweeper deletes what has expired, and nothing else.
    async fn the_sweeper_deletes_what_has_expired<D>() {
        let world = World::<D>::new().await;
        let store = SqlxStore::new(world.pool.clone());
        let mortal = Server::start(effects_app(&world.layer().ttl(Duration::from_secs(60)))).await;
        let immortal = Server::start(effects_app(&world.layer())).await;
        let act = json!({"note": "x"});
        Client::new(&mortal).post("/effects", "old", &act).await;
        Client::new(&immortal).post("/effects", "ever", &act).await;
        world.age(Duration::from_secs(61)).await;
        Client::new(&mortal).post("/effects", "new", &act).await;
        let sweeper = tokio::spawn(sweep(store, Duration::from_millis(20)));
        while world.records("old", "completed").await != 0 {
            tokio::task::yield_now().await;
        }
        sweeper.abort();
        assert_eq!(world.records("new", "completed").await, 1);
        assert_eq!(world.records("ever", "completed").await, 1);
        world.end().await;
    }
}

/// The application's own migrations do not see ours, before or after.
#[tokio::test]
async fn the_applications_own_migrations_are_left_alone() {
    let database = Postgres::database().await;
    let pool = Postgres::connect(&database, 2).await;
    users_own().run(&pool).await.unwrap();
    migrate(&pool).await.unwrap();
    users_own().run(&pool).await.unwrap();
    let applied = "SELECT count(*) FROM _sqlx_migrations WHERE description <> $1";
    assert_eq!(Postgres::count(&pool, applied, "").await, 1);

    let database = Sqlite::database().await;
    let pool = Sqlite::connect(&database, 2).await;
    migrate(&pool).await.unwrap();
    users_own().run(&pool).await.unwrap();
    migrate(&pool).await.unwrap();
    assert_eq!(Sqlite::count(&pool, applied, "").await, 1);
}
