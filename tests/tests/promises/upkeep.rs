//! Making the table, and keeping it small.

use std::borrow::Cow;
use std::time::Duration;

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

on_every_database! {
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
