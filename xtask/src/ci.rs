//! `cargo xtask ci`

use std::process::Command;
use std::time::Instant;

use crate::metadata::Workspace;
use crate::table::Table;
use crate::{Outcome, bench, command, deny, features, migrations, rules, test};

/// A step: its name, and what it does.
type Step = (&'static str, fn(&Workspace) -> Result<Remark, Failure>);

/// What is to be known of a step that passed.
type Remark = Option<&'static str>;

/// Why a step failed, and what repeats it.
struct Failure {
    reason: String,
    repeat: String,
}

const STEPS: [Step; 9] = [
    ("format", |workspace| {
        for manifest in ["Cargo.toml", "fuzz/Cargo.toml", bench::PEERS] {
            cargo(
                workspace,
                &["fmt", "--all", "--check", "--manifest-path", manifest],
            )?;
        }
        Ok(None)
    }),
    ("clippy", |workspace| {
        let all = [
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--all-features",
        ];
        cargo(workspace, &[&all[..], &["--", "-D", "warnings"]].concat())
    }),
    ("peers", |workspace| {
        let mut command = bench::peers(workspace, "clippy");
        command.args(["--", "-D", "warnings"]);
        run(command)
    }),
    ("docs", |workspace| {
        let mut command = command::cargo(workspace);
        command
            .args(["doc", "--workspace", "--no-deps", "--all-features"])
            .env("RUSTDOCFLAGS", "-D warnings");
        run(command)
    }),
    ("features", |workspace| {
        features::commands(workspace)
            .into_iter()
            .try_for_each(|command| {
                println!("{}", command::shown(&command));
                run(command).map(drop)
            })?;
        Ok(None)
    }),
    ("package", |workspace| {
        let repeat = command::shown(&migrations::list(workspace));
        failing(migrations::check(workspace).map(|()| None), repeat)
    }),
    ("deny", |workspace| {
        failing(deny::check(workspace), deny::CHECK.to_owned())
    }),
    ("rules", |workspace| {
        let repeat = "cargo xtask rules".to_owned();
        failing(rules::run(workspace).map(|()| None), repeat)
    }),
    ("test", |workspace| {
        let repeat = "cargo xtask test".to_owned();
        failing(test::run(workspace, None, &[]).map(|()| None), repeat)
    }),
];

/// Runs all steps, up to the first that fails.
pub(crate) fn run_all(workspace: &Workspace) -> Outcome {
    let mut table = Table::default();
    let mut failed = None;
    for (name, step) in STEPS {
        println!("== {name}");
        let begun = Instant::now();
        let outcome = step(workspace);
        let word = match &outcome {
            Ok(remark) => remark.unwrap_or("ok"),
            Err(_) => "failed",
        };
        table.push(name, begun.elapsed(), word);
        if let Err(failure) = outcome {
            failed = Some((name, failure));
            break;
        }
    }
    print!("\n{table}");
    match failed {
        None => Ok(()),
        Some((name, Failure { reason, repeat })) => {
            Err(format!("{name} failed: {reason}\nrepeat it with: {repeat}").into())
        }
    }
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<Remark, Failure> {
    let mut command = command::cargo(workspace);
    command.args(arguments);
    run(command)
}

fn run(mut command: Command) -> Result<Remark, Failure> {
    let outcome = command::run(&mut command).map(|()| None);
    failing(outcome, command::shown(&command))
}

fn failing(outcome: Outcome<Remark>, repeat: String) -> Result<Remark, Failure> {
    outcome.map_err(|error| Failure {
        reason: error.to_string(),
        repeat,
    })
}
