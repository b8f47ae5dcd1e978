//! `cargo xtask mutants`: code with one small mistake each, and the tests that must notice.

mod core;
mod sql;
mod text;

use clap::Subcommand;

use crate::Outcome;
use crate::metadata::Workspace;

/// What is mutated.
#[derive(Subcommand)]
pub(crate) enum Mutants {
    /// The decisions of the core, by cargo-mutants; `.cargo/mutants.toml` says which.
    ///
    /// Installs cargo-mutants below the target folder where it is missing. Takes hours.
    Core {
        /// Passed on: `cargo xtask mutants core -- -f finish.rs`.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// The statements of the stores over sqlx.
    Sql(sql::Options),
}

/// Tries mutants.
pub(crate) fn run(workspace: &Workspace, mutants: &Mutants) -> Outcome {
    match mutants {
        Mutants::Core { arguments } => core::run(workspace, arguments),
        Mutants::Sql(options) => sql::run(workspace, options),
    }
}
