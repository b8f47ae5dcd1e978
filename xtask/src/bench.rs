//! `cargo xtask bench`

use std::process::Command;

use clap::Args;

use crate::metadata::Workspace;
use crate::{Outcome, command, engines};

/// What measures other crates: a workspace of its own.
pub(crate) const PEERS: &str = "benches/peers/Cargo.toml";

/// How much is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// Only the figures that have goals, in less than four minutes.
    #[arg(long, conflicts_with = "peers")]
    quick: bool,
    /// Only everybody side by side on PostgreSQL, other crates among them: seven minutes, once it
    /// is built.
    #[arg(long)]
    peers: bool,
    /// Passed on to what measures the figures, and then other crates are left out: `cargo xtask
    /// bench --quick -- --only purge`.
    #[arg(last = true, conflicts_with = "peers")]
    arguments: Vec<String>,
}

/// Measures what the layer costs, on servers of its own.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Outcome {
    engines::postgres()?;
    let mut figures = Ok(());
    if !options.peers {
        engines::mariadb()?;
        let mut command = command::cargo(workspace);
        command.args(["run", "--quiet", "--release", "--package", "benches", "--"]);
        match options.quick {
            true => command.arg("--quick"),
            false => command.args(["--profile", "--matrix", "--write", "docs"]),
        };
        figures = command::run(command.args(&options.arguments));
    }
    if options.quick || !options.arguments.is_empty() {
        return figures;
    }
    let mut command = peers(workspace, "run");
    command.args(["--quiet", "--release", "--", "--write", "docs"]);
    let peers = command::run(&mut command);
    // A figure that falls short is no reason to leave the others' cells as they were.
    figures.and(peers)
}

/// A command of cargo's for what measures other crates.
pub(crate) fn peers(workspace: &Workspace, verb: &str) -> Command {
    let mut command = command::cargo(workspace);
    command
        .args([verb, "--locked", "--manifest-path", PEERS])
        .arg("--target-dir")
        .arg(workspace.target.join("peers"));
    command
}
