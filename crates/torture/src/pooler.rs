//! What a pooler in transaction mode does to statements, by the way in which they are sent.

use std::ops::AddAssign;
use std::time::Duration;

use clap::Args;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use test_support::{Binaries, PgBouncer, PostgresNode, ServerSettings};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_idempotency::{Finding, Severity, SqlxStore};

use crate::Outcome;

#[derive(Args)]
pub(crate) struct Options {
    /// How long each way is tried.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

/// Clients, each with a connection, for five connections of the pooler's.
const CLIENTS: usize = 50;

/// How many statements there are, each with a result of its own.
const STATEMENTS: i64 = 40;

/// A way to send a statement.
#[derive(Clone, Copy, Debug)]
enum Way {
    Prepared,
    NoCache,
    Unnamed,
    UnnamedInTransaction,
    PreparedInTransaction,
    Plain,
}

const WAYS: [Way; 6] = [
    Way::Prepared,
    Way::PreparedInTransaction,
    Way::NoCache,
    Way::Unnamed,
    Way::UnnamedInTransaction,
    Way::Plain,
];

impl Way {
    /// Whether it has to be right, behind a pooler that keeps prepared statements or does not.
    fn is_right(self, prepares: bool) -> bool {
        match self {
            Self::Prepared | Self::PreparedInTransaction | Self::NoCache => prepares,
            Self::Unnamed => false,
            Self::UnnamedInTransaction | Self::Plain => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Prepared => "sqlx's default",
            Self::NoCache => "statement_cache_capacity(0)",
            Self::Unnamed => "persistent(false)",
            Self::PreparedInTransaction | Self::UnnamedInTransaction => {
                "likewise, in a transaction"
            }
            Self::Plain => "raw_sql",
        }
    }
}

/// What came of the statements that were sent in one way.
#[derive(Clone, Copy, Default)]
struct Counts {
    right: u64,
    /// Another statement's result.
    foreign: u64,
    failed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.right += other.right;
        self.foreign += other.foreign;
        self.failed += other.failed;
    }
}

pub(crate) async fn run(options: &Options) -> Outcome {
    let settings = ServerSettings::default();
    let server = PostgresNode::primary(&Binaries::find()?, &settings).await?;
    let pooler = PgBouncer::start(server.address()).await?;
    let (major, minor) = pooler.version();
    println!("PgBouncer {major}.{minor}, transaction mode, {CLIENTS} clients, 5 connections");
    let checked = check(&pooler).await;
    pooler.stop().await;
    checked?;
    println!(
        "\n{:<32}{:>10}{:>10}{:>10}",
        "", "right", "foreign", "failed"
    );
    let seed = fastrand::u64(..);
    let mut broken = Vec::new();
    for way in WAYS {
        // A fresh one: its connections to the server have what others prepared on them.
        let pooler = PgBouncer::start(server.address()).await?;
        let until = Instant::now() + Duration::from_secs(options.seconds);
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let address = pooler.address();
            let options = PgConnectOptions::new_without_pgpass()
                .host(&address.ip().to_string())
                .port(address.port())
                .username("postgres")
                .database("postgres")
                .statement_cache_capacity(if matches!(way, Way::NoCache) { 0 } else { 100 });
            let dice = fastrand::Rng::with_seed(seed ^ u64::try_from(client)?);
            clients.spawn(send(way, options, dice, until));
        }
        let mut counts = Counts::default();
        while let Some(client) = clients.join_next().await {
            counts += client??;
        }
        let Counts {
            right,
            foreign,
            failed,
        } = counts;
        println!("{:<32}{right:>10}{foreign:>10}{failed:>10}", way.name());
        if way.is_right(pooler.prepares()) && (right == 0 || foreign + failed > 0) {
            broken.push(way.name());
        }
        pooler.stop().await;
    }
    println!();
    server.stop().await;
    match &broken[..] {
        [] => Ok(()),
        ways => Err(format!("not right: {}", ways.join(", ")).into()),
    }
}

/// The store's own check says what may be used, and finds nothing wrong with that.
async fn check(pooler: &PgBouncer) -> Outcome {
    let address = pooler.address();
    let pool = PgPool::connect(&format!("postgres://postgres@{address}/postgres")).await?;
    let mut findings = Vec::new();
    for store in [
        SqlxStore::new(pool.clone()),
        SqlxStore::new(pool.clone()).unprepared(),
    ] {
        let of_the_pooler = |finding: &Finding| finding.what.contains("pooler");
        let mut found = store.check().await?;
        found.retain(of_the_pooler);
        for finding in &found {
            println!("check: {finding}");
        }
        findings.push(found);
    }
    pool.close().await;
    let as_expected = match &findings[..] {
        [prepared, plain] if pooler.prepares() => prepared.is_empty() && plain.len() == 1,
        [prepared, plain] => {
            let refused = prepared.iter().any(|f| f.severity == Severity::Error);
            refused && plain.is_empty()
        }
        _ => false,
    };
    if as_expected {
        Ok(())
    } else {
        Err("the check does not see what the pooler does".into())
    }
}

/// One client, which sends one statement of many after the other.
async fn send(
    way: Way,
    options: PgConnectOptions,
    mut dice: fastrand::Rng,
    until: Instant,
) -> Outcome<Counts> {
    let mut counts = Counts::default();
    let mut conn = PgConnection::connect_with(&options).await?;
    while Instant::now() < until {
        let (statement, value) = (dice.i64(..STATEMENTS), dice.i64(..1_000_000));
        match ask(way, &mut conn, statement, value).await {
            Ok(result) if result == format!("{statement} {value}") => counts.right += 1,
            Ok(_) => counts.foreign += 1,
            Err(_) => {
                counts.failed += 1;
                conn = PgConnection::connect_with(&options).await?;
            }
        }
    }
    Ok(counts)
}

async fn ask(
    way: Way,
    conn: &mut PgConnection,
    statement: i64,
    value: i64,
) -> sqlx::Result<String> {
    // Made of numbers.
    let sql = AssertSqlSafe(format!("SELECT '{statement} ' || $1::bigint"));
    match way {
        Way::Prepared | Way::NoCache => sqlx::query_scalar(sql).bind(value).fetch_one(conn).await,
        Way::Unnamed => {
            let query = sqlx::query_scalar(sql).bind(value).persistent(false);
            query.fetch_one(conn).await
        }
        Way::PreparedInTransaction | Way::UnnamedInTransaction => {
            let mut tx = conn.begin().await?;
            let query = sqlx::query_scalar(sql).bind(value);
            let persistent = matches!(way, Way::PreparedInTransaction);
            let result = query.persistent(persistent).fetch_one(&mut *tx).await?;
            tx.commit().await?;
            Ok(result)
        }
        Way::Plain => {
            let sql = AssertSqlSafe(format!("SELECT '{statement} ' || {value}::bigint"));
            let row = sqlx::Executor::fetch_one(conn, sqlx::raw_sql(sql)).await?;
            sqlx::Row::try_get(&row, 0)
        }
    }
}
