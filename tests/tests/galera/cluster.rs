//! The cluster, and a server of the application at each node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Answer, Client, Server, Stage, TestDb};
use http::StatusCode;
use serde_json::json;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{MySql, MySqlPool, Row as _};
use test_support::{MariadbBinaries, MariadbNode};
use tower_idempotency::{IdempotencyLayer, Tx, migrate};

/// After this time a claim is another's to take over.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(2);

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<MariadbNode>,
    pub(crate) sites: [Arc<Site>; 3],
}

/// A server of the application at one node.
pub(crate) struct Site {
    pool: MySqlPool,
    client: Client,
    _server: Server,
    /// How often its handler ran.
    pub(crate) runs: Arc<AtomicUsize>,
    /// Where the handler stands still once it has written.
    pub(crate) stage: Arc<Stage>,
    /// Whether the next run of it does.
    pub(crate) pauses: Arc<AtomicBool>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let binaries = MariadbBinaries::find().expect("MariaDB is installed");
        let nodes = MariadbNode::cluster(&binaries).await;
        let nodes = nodes.unwrap_or_else(|error| panic!("{error}"));
        let database = "CREATE DATABASE app";
        nodes[0].run(database.to_owned()).await.expect("a database");
        let mut sites = Vec::new();
        for node in &nodes {
            let pool = MySqlPoolOptions::new().connect(&node.url("app")).await;
            let pool = pool.expect("it answers");
            if sites.is_empty() {
                migrate(&pool).await.expect("the table is made");
                let tables = "CREATE TABLE effect (id serial PRIMARY KEY, note text NOT NULL); \
                     CREATE TABLE total (id int PRIMARY KEY, effects int NOT NULL); \
                     INSERT INTO total VALUES (1, 0)";
                let made = sqlx::raw_sql(tables).execute(&pool).await;
                made.expect("tables are made");
            }
            sites.push(Arc::new(Site::start(pool).await));
        }
        let sites = sites.try_into().unwrap_or_else(|_| panic!("three nodes"));
        Self { nodes, sites }
    }

    /// How many effects of that note are committed.
    pub(crate) async fn effects(&self, note: &str) -> i64 {
        let sql = "SELECT count(*) FROM effect WHERE note = $1";
        MySql::count(&self.sites[0].pool, sql, note).await
    }

    /// How many transactions have failed, at all nodes, for those of another.
    pub(crate) async fn conflicts(&self) -> u64 {
        let mut sum = 0;
        for site in &self.sites {
            for sql in [
                "SHOW STATUS LIKE 'wsrep_local_cert_failures'",
                "SHOW STATUS LIKE 'wsrep_local_bf_aborts'",
            ] {
                let row = sqlx::raw_sql(sql).fetch_one(&site.pool).await;
                let count: String = row
                    .and_then(|row| row.try_get_unchecked(1))
                    .expect("a count");
                sum += count.parse::<u64>().expect("a number");
            }
        }
        sum
    }

    /// Ends the test: nothing may be left inside of a transaction.
    pub(crate) async fn stop(self) {
        for site in &self.sites {
            let sql = "SELECT count(*) FROM information_schema.innodb_trx AS t \
                 JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id \
                 WHERE p.command = 'Sleep' AND p.db <> $1";
            assert_eq!(MySql::count(&site.pool, sql, "").await, 0);
            site.pool.close().await;
        }
        for node in self.nodes {
            node.stop().await;
        }
    }
}

impl Site {
    async fn start(pool: MySqlPool) -> Self {
        let (runs, pauses) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let stage = Stage::new();
        let handler = {
            let (runs, pauses, stage) = (runs.clone(), pauses.clone(), stage.clone());
            move |tx: Tx<MySql>, note: String| {
                let (pauses, stage) = (pauses.clone(), stage.clone());
                runs.fetch_add(1, Ordering::SeqCst);
                async move {
                    write(&tx, &note, &pauses, &stage)
                        .await
                        .unwrap_or_else(|e| e)
                }
            }
        };
        let layer = IdempotencyLayer::new(pool.clone())
            .operation("write")
            .stale_after(STALE_AFTER)
            .wait_for_in_progress(Duration::from_secs(10))
            // The others wait for a while before they go on without one of them.
            .store_timeout(Duration::from_secs(30));
        let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
        Self {
            pool,
            client: Client::new(&server),
            _server: server,
            runs,
            stage,
            pauses,
        }
    }

    pub(crate) async fn post(&self, key: &str, note: &str) -> Answer {
        let body = json!(note);
        self.client.post("/", key, &body).await
    }
}

/// Adds an effect, and counts it in a row that all have in common.
async fn write(
    tx: &Tx<MySql>,
    note: &str,
    pauses: &AtomicBool,
    stage: &Stage,
) -> Result<Response, Response> {
    let failed =
        |error: sqlx::Error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
    let note = note.trim_matches('"');
    MySql::insert(&mut conn, note).await.map_err(failed)?;
    MySql::run(&mut conn, "UPDATE total SET effects = effects + 1")
        .await
        .map_err(failed)?;
    if pauses.swap(false, Ordering::SeqCst) {
        stage.pause().await;
    }
    Ok((StatusCode::CREATED, note.to_owned()).into_response())
}
