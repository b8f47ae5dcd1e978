//! Making the table, and keeping it small.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::StatusCode;
use end_to_end::{Client, Server, TestDb, World, effects_app, on_every_database};
use serde_json::json;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, Postgres, Row as _, SqlSafeStr, Sqlite};
use tokio::task::JoinSet;
use tower_idempotency::{SqlxStore, Store as _, migrate, sweep};

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

/// What the planner guesses of a parameter does not matter: no statement reads the whole table for
/// one key or one batch. Only the search for what has been stale for a month does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_reads_the_whole_table() {
    let world = World::<Postgres>::with_connections(1).await;
    let fill = "INSERT INTO tower_idempotency.record (owner, operation, key, state, claim_token, \
             claimed_at, stale_at, fingerprint, status, kept, completed_at, expires_at) \
         SELECT 'o' || i % 100, 'publish', i, 'completed', decode(md5(i::text), 'hex'), now(), \
             now(), 'hs1:', 201, false, now(), now() - i * interval '1 second' \
         FROM generate_series(1, 20000) AS i";
    let run = async |sql| {
        let ran = sqlx::raw_sql(sql).execute(&world.pool).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
    };
    run(fill).await;
    run("VACUUM ANALYZE tower_idempotency.record").await;

    let server = Server::start(effects_app(&world.layer())).await;
    let client = Client::new(&server);
    let mut arrivals = JoinSet::new();
    for i in 0..16 {
        let client = client.clone();
        let act = json!({"note": "x", "answer": if i % 2 == 0 { 201 } else { 500 }});
        arrivals.spawn(async move { client.post("/effects", &(i / 4).to_string(), &act).await });
    }
    arrivals.join_all().await;
    let store = SqlxStore::new(world.pool.clone());
    assert_eq!(store.purge(10).await.unwrap(), 10);
    assert_eq!(store.purge(20_000).await.unwrap(), 19_990);

    let prepared: Vec<(String, String, i32)> = sqlx::query_as(
        "SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements \
         WHERE statement LIKE '%tower_idempotency.record%' \
             AND statement NOT LIKE '%stale_at <= now() - $2%'",
    )
    .fetch_all(&world.pool)
    .await
    .unwrap();
    for part in [
        "unnest",
        "INSERT",
        "UPDATE",
        "state = 'claimed'",
        "ORDER BY expires_at",
    ] {
        let seen = prepared
            .iter()
            .any(|(_, statement, _)| statement.contains(part));
        assert!(seen, "no statement with {part}");
    }
    run("SET plan_cache_mode = force_generic_plan").await;
    for (name, statement, parameters) in prepared {
        let nulls = vec!["NULL"; usize::try_from(parameters).unwrap()].join(", ");
        let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE {name} ({nulls})"));
        let plan: Vec<String> = sqlx::raw_sql(explain)
            .fetch_all(&world.pool)
            .await
            .unwrap()
            .iter()
            .map(|line| line.get(0))
            .collect();
        let plan = plan.join("\n");
        assert!(!plan.contains("Seq Scan on record"), "{statement}\n{plan}");
    }
    world.end().await;
}

/// R37: also of a table in parts, each of which has rows at the same places, no more is purged than was
/// asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_may_be_in_parts() {
    let world = World::<Postgres>::new().await;
    for sql in [
        "CREATE TABLE tower_idempotency.parts \
             (LIKE tower_idempotency.record INCLUDING CONSTRAINTS) PARTITION BY HASH (owner)",
        "DROP TABLE tower_idempotency.record",
        "ALTER TABLE tower_idempotency.parts RENAME TO record",
        "ALTER TABLE tower_idempotency.record \
             ADD CONSTRAINT record_pkey PRIMARY KEY (owner, operation, key)",
        "CREATE TABLE tower_idempotency.record_0 PARTITION OF tower_idempotency.record \
             FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE tower_idempotency.record_1 PARTITION OF tower_idempotency.record \
             FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "INSERT INTO tower_idempotency.record (owner, operation, key, state, claim_token, \
             claimed_at, stale_at, fingerprint, status, kept, completed_at, expires_at) \
         SELECT 'o' || i, 'publish', i, 'completed', decode(md5(i::text), 'hex'), now(), now(), \
             'hs1:', 201, false, now(), now() \
         FROM generate_series(1, 400) AS i",
    ] {
        let ran = sqlx::raw_sql(sql).execute(&world.pool).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let store = SqlxStore::new(world.pool.clone());
    assert_eq!(store.purge(150).await.unwrap(), 150);
    let server = Server::start(effects_app(&world.layer())).await;
    let (client, act) = (Client::new(&server), json!({"note": "x"}));
    assert_eq!(
        client.post("/effects", "k", &act).await.status,
        StatusCode::CREATED
    );
    assert!(client.post("/effects", "k", &act).await.is_replay());
    assert_eq!(store.purge(1_000).await.unwrap(), 250);
    world.end().await;
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
