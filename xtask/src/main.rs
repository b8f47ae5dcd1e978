//! Tasks of this repository: `cargo xtask --help`.

mod bench;
mod ci;
mod cluster;
mod command;
mod deny;
mod engines;
mod features;
mod fuzz;
mod matrix;
mod metadata;
mod migrations;
mod mutants;
mod packages;
mod rules;
mod table;
mod test;
mod tools;
mod torture;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use metadata::Workspace;

/// Tasks of this repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs all tests, on real databases.
    ///
    /// Finds the servers of PostgreSQL and MariaDB or installs them (apt as root or with sudo,
    /// Homebrew), or takes those that `TEST_POSTGRES_URL` and `TEST_MYSQL_URL` name. Leaves nothing
    /// running.
    Test {
        /// A folder with PostgreSQL's server binaries, in the place of those that are found.
        #[arg(long)]
        postgres: Option<PathBuf>,
        /// Passed on to `cargo test --all-features`, which tests the whole workspace unless they
        /// name packages: `cargo xtask test -- -p test-support proxy`.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Kills, stalls and cuts off server processes under load, and proves what clients were told.
    Torture {
        /// Passed on: `cargo xtask torture -- --seconds 7200 --database postgres`.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Tortures servers on an engine of more than one machine, whose parts are killed as well.
    ///
    /// Installs what is missing where it can (apt as root or with sudo). Leaves nothing running.
    Cluster(cluster::Options),
    /// Runs the contract of a store on versions of PostgreSQL, at each isolation, and prints a table.
    Matrix(matrix::Options),
    /// Measures what the layer costs, beside its goals and beside others. Fails where one falls
    /// short.
    ///
    /// In whole, about twenty minutes on two cores, it writes `docs/performance-*.csv` and the chart;
    /// the text of `docs/performance.md` stays as it is. Not part of `test`.
    Bench(bench::Options),
    /// Fuzzes all that takes bytes from a client, a handler or a row.
    ///
    /// Installs cargo-fuzz below the target folder where it is missing. What it finds is below
    /// `fuzz/artifacts`, with the command that repeats it.
    Fuzz(fuzz::Options),
    /// Makes one small mistake after the other, to see whether a test notices.
    #[command(subcommand)]
    Mutants(mutants::Mutants),
    /// Runs all that has to pass before a change is merged.
    Ci,
    /// Checks that every rule of protocol.md is named by a test, and no other.
    Rules,
}

/// What went wrong, for the person at the terminal.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let outcome = Workspace::read().and_then(|workspace| match Arguments::parse().task {
        Task::Test {
            postgres,
            arguments,
        } => test::run(&workspace, postgres, &arguments),
        Task::Torture { arguments } => torture::run(&workspace, &arguments),
        Task::Cluster(options) => cluster::run(&workspace, &options),
        Task::Matrix(options) => matrix::run(&workspace, &options),
        Task::Bench(options) => bench::run(&workspace, &options),
        Task::Fuzz(options) => fuzz::run(&workspace, &options),
        Task::Mutants(mutants) => mutants::run(&workspace, &mutants),
        Task::Ci => ci::run_all(&workspace),
        Task::Rules => rules::run(&workspace),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
