//! The core's code with one small mistake each, by cargo-mutants.

use std::path::Path;
use std::process::Command;

use tokio::runtime::Runtime;

use crate::engines::Engines;
use crate::metadata::Workspace;
use crate::{Outcome, command, tools};

/// Tries the mutants that the quick tests of the core miss again with the end-to-end tests on SQLite.
/// Fails where one survives both.
pub(super) fn run(workspace: &Workspace, arguments: &[String]) -> Outcome {
    let program = tools::find_or_install(workspace, "cargo-mutants")?;
    let mut quick = cargo_mutants(workspace, &program, "tower-idempotency-core");
    quick.args(arguments).args(["--", "--lib", "--tests"]);
    let status = quick.status()?;
    // Its codes for mutants that were missed, or that hang.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(format!("{}: {status}", command::shown(&quick)).into());
    }
    Runtime::new()?.block_on(async {
        let engines = Engines::start(None).await?;
        let mut thorough = cargo_mutants(workspace, &program, "end-to-end");
        thorough
            .arg("--iterate")
            .args(arguments)
            .args(["--", "--test", "contract", "--test", "promises"])
            .args(["--test", "protocol", "--"])
            .args(["--skip", "postgres", "--skip", "mysql"])
            .envs(engines.variables());
        let tried = command::run(&mut thorough);
        engines.stop().await?;
        tried
    })
}

fn cargo_mutants(workspace: &Workspace, program: &Path, tests: &str) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(&workspace.root)
        .args([
            "mutants",
            "--no-shuffle",
            "--package",
            "tower-idempotency-core",
        ])
        .args(["--minimum-test-timeout", "60", "--test-package", tests])
        .arg("--output")
        .arg(&workspace.target);
    command
}
