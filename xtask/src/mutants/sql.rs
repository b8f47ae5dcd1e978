//! Statements with one small mistake each, and the tests that must notice.
//!
//! The tests are built once, with a driver that can send another statement than it was given: what is
//! mutated is said by the environment.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::text::{self, Mutant};
use crate::engines::Engines;
use crate::metadata::Workspace;
use crate::{Outcome, command};

/// Past this a mutant hangs, which is noticed too.
const PATIENCE: Duration = Duration::from_secs(300);

/// Which mutants are tried.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Those whose name has that in it: `postgres`, `sqlite replace`. All of them by default.
    only: Vec<String>,
    /// Asks the contract alone, not the promises: quicker, and more survive.
    #[arg(long)]
    contract: bool,
    /// Tells which mutants there are, and tries none.
    #[arg(long)]
    list: bool,
}

/// Tries the mutants one after the other. Fails where one survives that docs/mutants.md does not name.
pub(super) fn run(workspace: &Workspace, options: &Options) -> Outcome {
    let mutants: Vec<_> = mutants(workspace)?
        .into_iter()
        .filter(|mutant| {
            let name = mutant.name();
            options.only.is_empty() || options.only.iter().any(|only| name.contains(only))
        })
        .collect();
    if options.list {
        mutants
            .iter()
            .for_each(|mutant| println!("{}", mutant.name()));
        return Ok(());
    }
    let named = fs::read_to_string(workspace.root.join("docs/mutants.md"))?;
    let tests = if options.contract {
        &["contract"][..]
    } else {
        &["contract", "promises"]
    };
    let tests: Vec<_> = tests
        .iter()
        .map(|name| Ok((*name, build(workspace, name)?)))
        .collect::<Outcome<_>>()?;
    Runtime::new()?.block_on(async {
        let engines = Engines::start(None).await?;
        let survivors = survivors(&mutants, &tests, &engines).await;
        engines.stop().await?;
        let survivors = survivors?;
        let unnamed: Vec<_> = survivors
            .iter()
            .filter(|mutant| !mutant.is_named(&named))
            .collect();
        println!(
            "{} mutants, {} survive, of which docs/mutants.md does not name {}",
            mutants.len(),
            survivors.len(),
            unnamed.len()
        );
        match unnamed.is_empty() {
            true => Ok(()),
            false => Err("tests are missing, or docs/mutants.md is behind".into()),
        }
    })
}

async fn survivors(
    mutants: &[Mutant],
    tests: &[(&str, PathBuf)],
    engines: &Engines,
) -> Outcome<Vec<Mutant>> {
    let mut survivors = Vec::new();
    for mutant in mutants {
        let begun = Instant::now();
        let mut verdict = "survives".to_owned();
        for (name, test) in tests {
            let of_its = which(mutant, name);
            if let Some(failed) = noticed(mutant, test, &of_its, engines).await? {
                verdict = format!("caught by {failed}");
                break;
            }
        }
        let seconds = begun.elapsed().as_secs();
        println!("{}: {verdict} ({seconds} s)", mutant.name());
        if verdict == "survives" {
            survivors.push(mutant.clone());
        }
    }
    Ok(survivors)
}

/// Which tests of that binary send the mutant's statement.
fn which(mutant: &Mutant, test: &str) -> Vec<String> {
    let Mutant {
        database,
        statement,
        ..
    } = mutant;
    match (test, &**database) {
        // Other ways of sending have the contract to themselves.
        ("contract", database) => {
            let relaxed = if statement.contains("relaxed") {
                "_relaxed"
            } else {
                ""
            };
            vec![format!("{database}{relaxed}::"), format!("on_{database}")]
        }
        // What names no database is run on PostgreSQL.
        (_, "postgres") => ["--skip", "mysql", "--skip", "sqlite"]
            .map(Into::into)
            .into(),
        (_, database) => vec![database.to_owned()],
    }
}

/// The first test that fails, or what else betrays the mutant. The tests end there.
async fn noticed(
    mutant: &Mutant,
    test: &Path,
    of_its: &[String],
    engines: &Engines,
) -> Outcome<Option<String>> {
    let mut child = tokio::process::Command::new(test)
        .args(of_its)
        .envs(engines.variables())
        .env("SQL_MUTANT_OF", &mutant.of)
        .env("SQL_MUTANT_IS", &mutant.is)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    let mut lines = BufReader::new(output).lines();
    let failing = async {
        while let Some(line) = lines.next_line().await? {
            if let Some(name) = line
                .strip_prefix("test ")
                .and_then(|line| line.strip_suffix(" ... FAILED"))
            {
                return Ok::<_, std::io::Error>(Some(name.to_owned()));
            }
        }
        Ok(None)
    };
    let failed = match timeout(PATIENCE, failing).await {
        Ok(failed) => failed?,
        Err(_) => Some("hanging".to_owned()),
    };
    if failed.is_some() {
        child.kill().await?;
        return Ok(failed);
    }
    let status = child.wait().await?;
    Ok((!status.success()).then(|| format!("its end: {status}")))
}

fn mutants(workspace: &Workspace) -> Outcome<Vec<Mutant>> {
    let mut listing = cargo(workspace);
    listing.args([
        "test",
        "--quiet",
        "--all-features",
        "-p",
        "tower-idempotency-sqlx",
    ]);
    listing.args(["--lib", "statements", "--", "--nocapture"]);
    let listing = command::output(&mut listing)?;
    // Statements of one text are one.
    let mut statements = BTreeMap::new();
    for line in listing.lines() {
        let mut columns = line.splitn(3, '\t');
        if let (Some(database), Some(name), Some(sql)) =
            (columns.next(), columns.next(), columns.next())
        {
            let database = database.to_lowercase().replace("postgresql", "postgres");
            statements
                .entry((database, sql.to_owned()))
                .or_insert_with(|| name.to_owned());
        }
    }
    let mutants = statements
        .iter()
        .flat_map(|((database, sql), name)| text::of_statement(database, name, sql));
    Ok(mutants.chain(text::composed()).collect())
}

/// Builds a binary of the end-to-end tests, and tells where it is.
fn build(workspace: &Workspace, test: &str) -> Outcome<PathBuf> {
    let mut building = cargo(workspace);
    building.args([
        "test",
        "--quiet",
        "--all-features",
        "--no-run",
        "-p",
        "end-to-end",
    ]);
    building.args(["--test", test, "--message-format", "json"]);
    let messages = command::output(&mut building)?;
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let named = message["target"]["name"] == test;
        let executable = message["executable"].as_str().filter(|_| named)?;
        Some(PathBuf::from(executable))
    });
    executables
        .next_back()
        .ok_or_else(|| format!("no test {test} was built").into())
}

/// Builds beside all else, which has no mutants in it.
fn cargo(workspace: &Workspace) -> Command {
    let mut command = command::cargo(workspace);
    let mut flags = env::var_os("RUSTFLAGS").unwrap_or_default();
    flags.push(" --cfg sql_mutants");
    command
        .env("RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", workspace.target.join("sql-mutants"));
    command
}
