//! What a pooler in transaction mode does to statements, by the way in which they are sent.

use std::ops::AddAssign;
use std::time::Duration;

use clap::Args;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use test_support::{Binaries, PgBouncer, PostgresNode, ServerSettings};
use tokio::task::JoinSet;
use tokio::time::Instant;

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
    fn name(self) -> &'static str {
        match self {
            Self::Prepared => "sqlx's default",
            Self::PreparedInTransaction => "likewise, in a transaction",
            Self::NoCache => "statement_cache_capacity(0)",
            Self::Unnamed => "persistent(false)",
            Self::UnnamedInTransaction => "likewise, in a transaction",
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
    let seed = fastrand::u64(..);
    let mut pooler = None;
    for way in WAYS {
        // With the server connections come what others have prepared on them.
        if let Some(pooler) = pooler.take() {
            PgBouncer::stop(pooler).await;
        }
        let started = PgBouncer::start(server.address()).await?;
        if pooler.is_none() && matches!(way, Way::Prepared) {
            let (major, minor) = started.version();
            println!(
                "PgBouncer {major}.{minor}, transaction mode, {CLIENTS} clients, 5 connections"
            );
            println!("{:<32}{:>10}{:>10}{:>10}", "", "right", "foreign", "failed");
        }
        let until = Instant::now() + Duration::from_secs(options.seconds);
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let address = started.address();
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
        pooler = Some(started);
    }
    if let Some(pooler) = pooler {
        pooler.stop().await;
    }
    server.stop().await;
    Ok(())
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
