//! The disk is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Answer, Client, Server, Stage, TestDb, World};
use serde_json::json;
use sqlx::Sqlite;
use tower_idempotency::Tx;

/// Sends a request until it is done.
async fn retry(client: &Client, key: &str) -> Answer {
    let retries = async {
        loop {
            let answer = client.post("/", key, &json!({})).await;
            if answer.status == StatusCode::CREATED {
                break answer;
            }
            assert_eq!(answer.json()["retryable"], true, "{answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), retries)
        .await
        .unwrap_or_else(|_| panic!("{key} is stuck"))
}

/// R61, R64: where SQLite meets the limit of its file in a handler's statement, it rolls the whole
/// transaction back by itself. That cannot be told from a roll-back by hand: the key does not run
/// again, and nothing is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_file_leaves_nothing() {
    let world = World::<Sqlite>::with_connections(1).await;
    let handler = |tx: Tx<Sqlite>| async move {
        let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
        Sqlite::insert(&mut conn, "x").await.expect("some space");
        let large = "y".repeat(100_000);
        Sqlite::insert(&mut conn, &large)
            .await
            .map_err(|_| StatusCode::INSUFFICIENT_STORAGE.into_response())?;
        Ok::<_, Response>(StatusCode::CREATED)
    };
    let server = Server::start(Router::new().route("/", post(handler).layer(world.layer()))).await;
    let client = Client::new(&server);
    limit_file(&world, "PRAGMA max_page_count = 20").await;
    let answer = client.post("/", "k", &json!({})).await;
    assert_eq!(answer.problem(), "transaction-lost");
    assert_eq!(world.effects("x").await, 0);
    limit_file(&world, "PRAGMA max_page_count = 1000000").await;
    let again = client.post("/", "k", &json!({})).await;
    assert_eq!(again.problem(), "outcome-unknown");
    assert_eq!(world.effects("x").await, 0);

    assert!(!retry(&client, "fresh").await.is_replay());
    assert_eq!(world.effects("x").await, 1);
    world.end().await;
}

/// Limits the one connection of a pool.
async fn limit_file(world: &World<Sqlite>, sql: &'static str) {
    let mut conn = world.pool.acquire().await.unwrap();
    Sqlite::run(&mut conn, sql).await.unwrap();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::{self, File};
    use std::io::{ErrorKind, Write as _};
    use std::os::unix::fs::{MetadataExt as _, chown, symlink};
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use sqlx::postgres::PgPoolOptions;
    use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres};
    use test_support::PostgresServer;
    use tokio::task::spawn_blocking;
    use tower_idempotency::{IdempotencyLayer, migrate};

    use super::*;

    const SMALL_DISK: &str = "TEST_SMALL_DISK";

    /// Whether this process has a file system of 4 MiB as its folder for temporary files. Where it
    /// has not, runs one test in another process that has, in a mount namespace of its own, for
    /// which one need not be root.
    fn on_a_small_disk(test: &str) -> bool {
        const NOT_MOUNTED: i32 = 77;
        if std::env::var_os(SMALL_DISK).is_some() {
            return true;
        }
        let folder = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=4m tmpfs \"$TMPDIR\" || exit 77; exec \"$0\" \"$@\"";
        let ran = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env("TMPDIR", folder.path())
            .env(SMALL_DISK, "1")
            .output();
        match ran {
            Ok(ran) if ran.status.success() => {
                let said = String::from_utf8_lossy(&ran.stdout);
                assert!(said.contains("1 passed"), "it ran: {said}");
            }
            // `unshare` fails with 1 where it may not, and says why.
            Ok(ran) if ran.status.code() == Some(NOT_MOUNTED) || ran.stdout.is_empty() => {
                let why = String::from_utf8_lossy(&ran.stderr);
                eprintln!("not run: no file system can be mounted here: {why}");
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("not run: there is no `unshare` here");
            }
            ran => panic!("{ran:?}"),
        }
        false
    }

    /// Takes all the space that is left, and gives it back when it is dropped.
    struct Ballast(PathBuf);

    impl Ballast {
        fn load() -> Self {
            let path = std::env::temp_dir().join("ballast");
            let mut file = File::create(&path).unwrap();
            // To the last byte.
            for size in [1 << 16, 1] {
                let block = vec![0; size];
                while file.write_all(&block).is_ok() {}
            }
            Self(path)
        }
    }

    impl Drop for Ballast {
        fn drop(&mut self) {
            fs::remove_file(&self.0).unwrap();
        }
    }

    /// R57, R61: on a full disk SQLite takes no claim, and what is there is replayed. A disk that is
    /// full when COMMIT comes is answered 500 `commit-failed`. Nothing is written, and the key can be
    /// used again once there is space.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sqlite_on_a_full_disk() {
        let test = "disk_full::linux::sqlite_on_a_full_disk";
        if !spawn_blocking(|| on_a_small_disk(test)).await.unwrap() {
            return;
        }
        let world = World::<Sqlite>::new().await;
        let (stage, runs) = (Stage::new(), Arc::new(AtomicUsize::new(0)));
        let handler = {
            let (stage, runs) = (Arc::clone(&stage), Arc::clone(&runs));
            move |tx: Tx<Sqlite>| {
                let (stage, runs) = (Arc::clone(&stage), Arc::clone(&runs));
                async move {
                    runs.fetch_add(1, Ordering::SeqCst);
                    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
                    // They stay in memory until COMMIT.
                    let large = "y".repeat(100_000);
                    Sqlite::insert(&mut conn, &large).await.expect("an insert");
                    Sqlite::insert(&mut conn, "x").await.expect("an insert");
                    stage.pause().await;
                    Ok::<_, Response>(StatusCode::CREATED)
                }
            }
        };
        // What could not be freed is taken over soon.
        let layer = world.layer().stale_after(Duration::from_secs(1));
        let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
        let client = Client::new(&server);
        stage.go_on();
        assert!(!retry(&client, "done").await.is_replay());
        stage.reached().await;

        let ballast = Ballast::load();
        let refused = client.post("/", "k", &json!({})).await;
        assert_eq!(refused.problem(), "store-unavailable");
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(runs.load(Ordering::SeqCst), 1, "the handler does not run");
        assert!(retry(&client, "done").await.is_replay());
        drop(ballast);
        assert_eq!(world.records("k", "claimed").await, 0);

        let sent = tokio::spawn({
            let client = client.clone();
            async move { client.post("/", "k", &json!({})).await }
        });
        stage.reached().await;
        let ballast = Ballast::load();
        stage.go_on();
        let failed = sent.await.unwrap();
        assert_eq!(failed.problem(), "commit-failed");
        assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR);
        drop(ballast);
        assert_eq!(world.effects("x").await, 1);
        assert_eq!(world.records("k", "completed").await, 0);

        stage.go_on();
        assert!(!retry(&client, "k").await.is_replay());
        assert!(retry(&client, "k").await.is_replay());
        assert_eq!(world.effects("x").await, 2);
        world.end().await;
    }

    /// A PostgreSQL database, and the folder that it is in.
    struct Postgresql {
        _server: PostgresServer,
        data: PathBuf,
        pool: PgPool,
        url: String,
    }

    impl Postgresql {
        async fn start() -> Self {
            let server = spawn_blocking(PostgresServer::start).await.unwrap();
            let server = server.expect("a server of our own");
            let url = server.url();
            Self {
                data: server.folder().join("data"),
                pool: PgPoolOptions::new().connect(&url).await.unwrap(),
                url,
                _server: server,
            }
        }

        /// Makes all tables anew. Whatever has their files open is gone.
        async fn reset(&self) {
            let mut conn = PgConnection::connect(&self.url).await.unwrap();
            let sql = "DROP SCHEMA IF EXISTS tower_idempotency CASCADE; \
                       DROP TABLE IF EXISTS effect, late; \
                       CREATE TABLE effect (note text NOT NULL); \
                       CREATE TABLE late (note text NOT NULL); \
                       CREATE OR REPLACE FUNCTION write_late() RETURNS trigger LANGUAGE plpgsql AS \
                           $$ BEGIN INSERT INTO late VALUES (NEW.note); RETURN NULL; END $$; \
                       CREATE CONSTRAINT TRIGGER late AFTER INSERT ON effect \
                           DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION write_late();";
            sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
            migrate(&self.pool).await.unwrap();
            self.disconnect(&mut conn).await;
        }

        /// Ends all other connections, which know the files of the tables.
        async fn disconnect(&self, conn: &mut PgConnection) {
            let sql = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
            sqlx::query(sql).execute(conn).await.unwrap();
        }

        /// Puts a device that is always full in the place of a table that is empty.
        async fn fill(&self, table: &str) -> PathBuf {
            let table = match table {
                "toast" => {
                    "(SELECT reltoastrelid FROM pg_class \
                      WHERE oid = 'tower_idempotency.record'::regclass)"
                }
                table => &format!("'{table}'::regclass"),
            };
            let mut conn = PgConnection::connect(&self.url).await.unwrap();
            let sql = format!("SELECT pg_relation_filepath({table})");
            let path: String = sqlx::query_scalar(AssertSqlSafe(sql))
                .fetch_one(&mut conn)
                .await
                .unwrap();
            let path = self.data.join(path);
            assert_eq!(fs::metadata(&path).unwrap().len(), 0, "it is empty");
            fs::remove_file(&path).unwrap();
            symlink("/dev/full", &path).unwrap();
            self.disconnect(&mut conn).await;
            path
        }

        /// Gives the table an empty file again.
        async fn heal(&self, path: &Path) {
            fs::remove_file(path).unwrap();
            let file = File::create_new(path).unwrap();
            let (owner, is_ours) = (fs::metadata(&self.data).unwrap(), file.metadata().unwrap());
            if owner.uid() != is_ours.uid() {
                chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
            }
            let mut conn = PgConnection::connect(&self.url).await.unwrap();
            self.disconnect(&mut conn).await;
        }

        /// How many effects there are, how many records, and how many of these are completed.
        async fn count(&self) -> (i64, i64, i64) {
            let sql = "SELECT (SELECT count(*) FROM effect), count(*), \
                              count(*) FILTER (WHERE state = 'completed') \
                       FROM tower_idempotency.record";
            sqlx::query_as(sql).fetch_one(&self.pool).await.unwrap()
        }
    }

    /// A text that cannot be compressed, and thus is not kept in the record's own row.
    fn noise() -> String {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            char::from(b'!' + u8::try_from(state >> 58).expect("6 bits"))
        };
        (0..50_000).map(|_| next()).collect()
    }

    /// R54, R57, R61: where PostgreSQL has no space for the claim, for the handler's write, for the
    /// result, or for what COMMIT writes, nothing is written, and the key can be used again once
    /// there is space.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn postgres_on_a_full_disk() {
        let postgres = Postgresql::start().await;
        let handler = |tx: Tx<Postgres>| async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            Postgres::insert(&mut conn, "x")
                .await
                .map_err(|_| StatusCode::INSUFFICIENT_STORAGE.into_response())?;
            Ok::<_, Response>((StatusCode::CREATED, noise()))
        };
        let layer = IdempotencyLayer::new(postgres.pool.clone());
        let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
        let client = Client::new(&server);
        for (full, status, problem) in [
            ("tower_idempotency.record", 503, Some("store-unavailable")),
            ("effect", 507, None),
            ("toast", 500, Some("commit-failed")),
            ("late", 500, Some("commit-failed")),
        ] {
            postgres.reset().await;
            let path = postgres.fill(full).await;
            let answer = client.post("/", "k", &json!({})).await;
            assert_eq!(answer.status.as_u16(), status, "{full}: {answer:?}");
            if let Some(problem) = problem {
                assert_eq!(answer.problem(), problem, "{full}");
            }
            postgres.heal(&path).await;
            assert_eq!(postgres.count().await, (0, 0, 0), "{full}");
            assert!(!retry(&client, "k").await.is_replay(), "{full}");
            assert!(retry(&client, "k").await.is_replay(), "{full}");
            assert_eq!(postgres.count().await, (1, 1, 1), "{full}");
        }
    }
}
