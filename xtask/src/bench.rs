//! `cargo xtask bench`

use clap::Args;

use crate::metadata::Workspace;
use crate::{Outcome, command, engines};

/// How much is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// Only the figures that have goals, in less than four minutes.
    #[arg(long)]
    quick: bool,
    /// Passed on: `cargo xtask bench --quick -- --only purge`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Measures what the layer costs, on servers of its own.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Outcome {
    engines::postgres()?;
    engines::mariadb()?;
    let mut command = command::cargo(workspace);
    command.args(["run", "--quiet", "--release", "--package", "benches", "--"]);
    match options.quick {
        true => command.arg("--quick"),
        false => command.args(["--profile", "--matrix", "--write", "docs"]),
    };
    command::run(command.args(&options.arguments))
}
