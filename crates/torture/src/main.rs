//! Server processes under load and faults, and a checker of what clients were told.
//!
//! Run with
//!
//! ```text
//! cargo xtask torture
//! cargo xtask torture -- --seconds 7200 --database postgres --isolation serializable
//! ```
//!
//! Three servers on one PostgreSQL database, then two on one SQLite file, are killed, stalled and
//! cut off from it, while clients hang up, retry and race. Then all is calm, every key is asked for
//! once more, and what all clients were told is compared with what is there.

mod effects;
mod faults;
mod fleet;
mod history;
mod load;
mod points;
mod pooler;
mod report;
mod round;
mod server;
mod system;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use self::report::Report;
use self::round::Setup;
use self::system::database::{Engine, Isolation};

/// What went wrong, for the person at the terminal.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Server processes under load and faults, and a checker of what clients were told.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Command {
    /// Kills a server at each named point, once.
    Points(points::Options),
    /// One key at four processes at once, behind a balancer; then one of them dies.
    Fleet(fleet::Options),
    /// Sends mixed statements through PgBouncer, in each of the ways that sqlx has.
    Pooler(pooler::Options),
    /// One of the servers.
    #[command(hide = true)]
    Serve(server::Options),
}

#[derive(Args)]
struct Options {
    /// How long load and faults last, on each database. More than a minute is cut into rounds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// What load and faults are drawn from; printed, to run the same again.
    #[arg(long)]
    seed: Option<u64>,
    /// One database only.
    #[arg(long)]
    database: Option<Engine>,
    /// The isolation that PostgreSQL's transactions have by default.
    #[arg(long, default_value = "read committed")]
    isolation: Isolation,
}

/// The length of a round: its history is held in memory.
const ROUND: u64 = 60;

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { command, options } = Arguments::parse();
    let outcome = match command {
        Some(Command::Points(options)) => points::run(&options).await,
        Some(Command::Fleet(options)) => fleet::run(&options).await,
        Some(Command::Pooler(options)) => pooler::run(&options).await,
        Some(Command::Serve(options)) => server::run(options).await,
        None => torture(&options).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn torture(options: &Options) -> Outcome {
    let engines = match options.database {
        Some(engine) => vec![engine],
        None => vec![Engine::Postgres, Engine::Sqlite],
    };
    let mut clean = true;
    for engine in engines {
        clean &= on(engine, options).await?;
    }
    if clean {
        Ok(())
    } else {
        Err("the promise is broken".into())
    }
}

/// Runs all rounds on one database, up to the first that finds something.
async fn on(engine: Engine, options: &Options) -> Outcome<bool> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    match engine {
        Engine::Sqlite | Engine::Mariadb | Engine::Galera => {
            println!("{}, --seed {seed}", engine.name());
        }
        _ => println!(
            "{}, {}, --seed {seed}",
            engine.name(),
            options.isolation.name()
        ),
    }
    let mut report = Report::default();
    let mut left = options.seconds;
    let mut number = 0;
    while left > 0 && report.is_clean() {
        let seconds = left.min(ROUND);
        let setup = Setup {
            engine,
            isolation: options.isolation,
            time: Duration::from_secs(seconds),
            seed: seed.wrapping_add(number),
        };
        let round = round::run(&setup).await;
        report.add(round.map_err(|error| format!("round with --seed {}: {error}", setup.seed))?);
        left -= seconds;
        number += 1;
    }
    report.print();
    Ok(report.is_clean())
}
