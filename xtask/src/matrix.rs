//! `cargo xtask matrix`

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Args;
use test_support::{Binaries, PostgresServer, ServerSettings};

use crate::metadata::Workspace;
use crate::{Outcome, command, engines};

#[derive(Args)]
pub(crate) struct Options {
    /// Folders with the server binaries of more versions.
    folders: Vec<PathBuf>,
    /// Only at this default isolation; may be said again.
    #[arg(long, value_parser = ISOLATIONS)]
    isolation: Vec<String>,
}

const ISOLATIONS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// Runs the contract on each version of PostgreSQL that is there, at each isolation that is asked for.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Outcome {
    let mut versions = Vec::new();
    for folder in &options.folders {
        versions.push(Binaries::at(folder.clone())?);
    }
    versions.push(engines::postgres()?);
    versions.sort_by_key(number);
    // One line each: what `cargo xtask test` would find may be among the folders.
    versions.dedup_by_key(|binaries| number(binaries));

    command::run(&mut contract(workspace, &["--no-run", "--quiet"]))?;
    println!(
        "{:<12}{:<18}{:>8}{:>8}{:>8}",
        "PostgreSQL", "isolation", "passed", "failed", "time"
    );
    let mut failed = 0;
    let wanted = |isolation: &&str| {
        options.isolation.is_empty() || options.isolation.iter().any(|one| one == isolation)
    };
    for binaries in &versions {
        for isolation in ISOLATIONS.into_iter().filter(wanted) {
            failed += on(workspace, binaries, isolation)?;
        }
    }
    match failed {
        0 => Ok(()),
        failed => Err(format!("{failed} tests failed").into()),
    }
}

/// Prints a line, and what went wrong. Returns how many tests failed.
fn on(workspace: &Workspace, binaries: &Binaries, isolation: &str) -> Outcome<u64> {
    let settings = ServerSettings::default().set("default_transaction_isolation", isolation);
    let server = PostgresServer::start_with(binaries, &settings)?;
    let began = Instant::now();
    let mut contract = contract(workspace, &[]);
    contract
        .env("TEST_POSTGRES_URL", server.url())
        .stdin(Stdio::null());
    let output = contract.output();
    let took = began.elapsed().as_secs_f32();
    server.stop();
    let output = String::from_utf8_lossy(&output?.stdout).into_owned();
    let (passed, failed) = counts(&output).ok_or_else(|| format!("no result:\n{output}"))?;
    let version = number(binaries).map(|part| part.to_string()).join(".");
    println!("{version:<12}{isolation:<18}{passed:>8}{failed:>8}{took:>6.0} s");
    if failed > 0 {
        print!("{output}");
    }
    Ok(failed)
}

fn contract(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = command::cargo(workspace);
    command
        .args(["test", "--package", "end-to-end", "--test", "contract"])
        .args(arguments)
        .arg("postgres");
    command
}

/// What `test result:` says.
fn counts(output: &str) -> Option<(u64, u64)> {
    let line = output
        .lines()
        .rfind(|line| line.starts_with("test result:"))?;
    let count = |what: &str| {
        let (before, _) = line.split_once(what)?;
        before.split_whitespace().next_back()?.parse().ok()
    };
    Some((count(" passed")?, count(" failed")?))
}

/// Major and minor version.
fn number(binaries: &Binaries) -> [u32; 2] {
    let version = binaries.version();
    let mut parts = version
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok());
    [(); 2].map(|()| parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::counts;

    /// The last line with a result counts, and a run without one is none.
    #[test]
    fn results_are_read() {
        let output = "test a ... ok\n\ntest result: FAILED. 12 passed; 3 failed; 0 ignored\n";
        assert_eq!(counts(output), Some((12, 3)));
        assert_eq!(counts("error: could not compile"), None);
    }
}
