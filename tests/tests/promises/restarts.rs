//! The database server goes down while a request is at each place of its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Answer, Client, Server, Stage};
use serde_json::json;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, Postgres};
use test_support::{Binaries, PostgresNode, ServerSettings};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tower_idempotency::{IdempotencyLayer, Tx, migrate};

/// Where the request is when the server goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The claim is not yet sent.
    BeforeClaim,
    /// The handler runs, and has not begun its transaction.
    Claimed,
    /// The handler has written.
    Written,
    /// The record is completed, and COMMIT has begun and not happened.
    Committing,
    /// COMMIT has happened, and its answer is not sent.
    Committed,
}

/// How it goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fall {
    /// As when its machine loses power: nobody is told.
    Crash,
    /// By an operator: clients are told.
    ShutDown,
}

/// For how long it is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    /// It is back before the request needs it again, or soon after.
    Brief,
    /// It is back after the request was answered.
    Long,
}

const TABLES: &str = "\
    CREATE TABLE effect (note text NOT NULL, lingers boolean NOT NULL);
    CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER effect_lingers AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.lingers) EXECUTE FUNCTION linger();";

/// A handler that stops where it was told to, in its first run.
struct Script {
    place: Place,
    runs: AtomicUsize,
    stage: Arc<Stage>,
}

impl Script {
    async fn pause(&self, place: Place, run: usize) {
        if run == 0 && self.place == place {
            self.stage.pause().await;
        }
    }
}

async fn write(tx: Tx<Postgres>, script: Arc<Script>) -> Result<StatusCode, Response> {
    let run = script.runs.fetch_add(1, Ordering::SeqCst);
    script.pause(Place::Claimed, run).await;
    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
    if run == 0 && script.place == Place::Committed {
        // Nobody is the standby that it then waits for, with the transaction committed here.
        let wait = "SET LOCAL synchronous_commit = on";
        sqlx::query(wait).execute(&mut *conn).await.unwrap();
    }
    sqlx::query("INSERT INTO effect (note, lingers) VALUES ('x', $1)")
        .bind(run == 0 && script.place == Place::Committing)
        .execute(&mut *conn)
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
    script.pause(Place::Written, run).await;
    Ok(StatusCode::CREATED)
}

/// A server that goes down and comes back.
struct Engine {
    node: Mutex<PostgresNode>,
    url: String,
}

impl Engine {
    async fn start() -> Self {
        let binaries = Binaries::find().expect("the binaries of PostgreSQL");
        let settings = ServerSettings::default()
            .durable()
            .set("synchronous_commit", "local")
            .set("synchronous_standby_names", "nobody");
        let node = PostgresNode::primary(&binaries, &settings).await.unwrap();
        let url = node.url();
        let pool = PgPoolOptions::new().connect(&url).await.unwrap();
        migrate(&pool).await.unwrap();
        sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
        pool.close().await;
        let node = Mutex::new(node);
        Self { node, url }
    }

    async fn go_down(&self, fall: Fall) {
        let mut node = self.node.lock().await;
        let down = match fall {
            Fall::Crash => node.crash().await,
            Fall::ShutDown => node.shut_down().await,
        };
        down.unwrap();
    }

    async fn come_back(&self) {
        self.node.lock().await.restart().await.unwrap();
    }

    async fn stop(self) {
        self.node.into_inner().stop().await;
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// How many effects there are, and how many completed records.
    async fn committed(&self) -> (i64, i64) {
        let sql = "SELECT (SELECT count(*) FROM effect), \
                   (SELECT count(*) FROM tower_idempotency.record WHERE state = 'completed')";
        let mut conn = self.connect().await;
        sqlx::query_as(sql).fetch_one(&mut conn).await.unwrap()
    }

    /// Serves a handler that stops where it was told to.
    async fn serve(&self, script: &Arc<Script>, outage: Outage) -> Server {
        // Whoever waits for the server to come back does so for that long.
        let patience = match outage {
            Outage::Brief => Duration::from_secs(30),
            Outage::Long => Duration::from_millis(300),
        };
        let pool = PgPoolOptions::new().acquire_timeout(patience);
        let pool = pool.connect(&self.url).await.unwrap();
        let layer = IdempotencyLayer::new(pool).store_timeout(patience);
        // What could not be freed is taken over soon.
        let layer = layer.stale_after(Duration::from_secs(1));
        let script = Arc::clone(script);
        let handler = move |tx: Tx<Postgres>| write(tx, Arc::clone(&script));
        Server::start(Router::new().route("/", post(handler).layer(layer))).await
    }
}

/// What holds COMMIT up, and a look at what it is waiting for.
struct Brake(PgConnection);

impl Brake {
    async fn pull(engine: &Engine) -> Self {
        let mut conn = engine.connect().await;
        let lock = sqlx::query("SELECT pg_advisory_lock(1)");
        lock.execute(&mut conn).await.unwrap();
        Self(conn)
    }

    async fn holds(&mut self, event: &str) {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = $1";
        loop {
            let count = sqlx::query_scalar(sql).bind(event);
            let waiting: i64 = count.fetch_one(&mut self.0).await.unwrap();
            if waiting > 0 {
                return;
            }
            // No event tells of it.
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Sends a request, and lets the server go down when it is at that place.
async fn interrupted(
    engine: &Engine,
    client: &Client,
    script: &Script,
    fall: Fall,
    outage: Outage,
    key: &str,
) -> Answer {
    let send = || {
        let (client, key) = (client.clone(), key.to_owned());
        tokio::spawn(async move { client.post("/", &key, &json!({})).await })
    };
    let mut brake = Brake::pull(engine).await;
    let mut sent = None;
    match script.place {
        Place::BeforeClaim => {}
        Place::Claimed | Place::Written => {
            sent = Some(send());
            script.stage.reached().await;
        }
        Place::Committing => {
            sent = Some(send());
            brake.holds("advisory").await;
        }
        Place::Committed => {
            sent = Some(send());
            brake.holds("SyncRep").await;
        }
    }
    engine.go_down(fall).await;
    match outage {
        Outage::Brief => {
            engine.come_back().await;
            script.stage.go_on();
            sent.unwrap_or_else(send).await.unwrap()
        }
        Outage::Long => {
            script.stage.go_on();
            let answer = sent.unwrap_or_else(send).await.unwrap();
            engine.come_back().await;
            answer
        }
    }
}

/// What the client may be told: the problem, if it is one.
fn expected(fall: Fall, place: Place, outage: Outage) -> &'static [Option<&'static str>] {
    match (place, outage) {
        // What was committed is found by its proof.
        (Place::BeforeClaim | Place::Claimed | Place::Committed, Outage::Brief) => &[None],
        (Place::BeforeClaim | Place::Claimed, Outage::Long) => &[Some("store-unavailable")],
        (Place::Written, _) | (Place::Committing, Outage::Brief) => &[Some("conflict-retry")],
        // A server that is shut down ends its connections one after the other: the next one may
        // still find out what became of the first one's COMMIT.
        (Place::Committing, Outage::Long) if fall == Fall::ShutDown => {
            &[Some("commit-unknown"), Some("conflict-retry")]
        }
        (Place::Committed, Outage::Long) if fall == Fall::ShutDown => {
            &[Some("commit-unknown"), None]
        }
        (Place::Committing | Place::Committed, Outage::Long) => &[Some("commit-unknown")],
    }
}

async fn survive(fall: Fall) {
    let engine = Engine::start().await;
    let mut done = 0;
    for outage in [Outage::Brief, Outage::Long] {
        for place in [
            Place::BeforeClaim,
            Place::Claimed,
            Place::Written,
            Place::Committing,
            Place::Committed,
        ] {
            let case = format!("{place:?}-{outage:?}");
            let script = Arc::new(Script {
                place,
                runs: AtomicUsize::new(0),
                stage: Stage::new(),
            });
            let server = engine.serve(&script, outage).await;
            let client = Client::new(&server);
            let answer = interrupted(&engine, &client, &script, fall, outage, &case).await;
            let problem = (answer.status != StatusCode::CREATED).then(|| answer.problem());
            let may_be = expected(fall, place, outage);
            assert!(may_be.contains(&problem.as_deref()), "{case}: {problem:?}");
            if let Some(problem) = problem {
                assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{case}");
                let after = if problem == "commit-unknown" {
                    "5"
                } else {
                    "1"
                };
                assert_eq!(answer.headers["retry-after"], after, "{case}");
            }
            let runs = usize::from(place != Place::BeforeClaim || outage == Outage::Brief);
            assert_eq!(script.runs.load(Ordering::SeqCst), runs, "{case}");

            let (effects, completed) = engine.committed().await;
            assert_eq!(effects, completed, "{case}");
            let is_there = place == Place::Committed || answer.status == StatusCode::CREATED;
            assert_eq!(effects, done + i64::from(is_there), "{case}");

            let retries = async {
                loop {
                    let answer = client.post("/", &case, &json!({})).await;
                    if answer.status == StatusCode::CREATED {
                        break answer;
                    }
                    assert_eq!(answer.json()["retryable"], true, "{case}: {answer:?}");
                    sleep(Duration::from_millis(20)).await;
                }
            };
            let retried = timeout(Duration::from_secs(30), retries).await;
            let retried = retried.unwrap_or_else(|_| panic!("{case}: the key is stuck"));
            assert_eq!(retried.is_replay(), is_there, "{case}");
            done += 1;
            assert_eq!(engine.committed().await, (done, done), "{case}: in the end");
        }
    }
    engine.stop().await;
}

/// R57, R61, R62: the server crashes before the claim, before the handler's transaction, after its
/// write, in COMMIT, and when COMMIT has happened and nobody was told. The answer is the truth, and
/// a retry ends with one effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_is_survived_at_each_place() {
    survive(Fall::Crash).await;
}

/// R57, R61, R62: likewise where it is shut down by an operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_is_survived_at_each_place() {
    survive(Fall::ShutDown).await;
}
