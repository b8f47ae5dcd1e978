//! `cargo xtask fuzz`

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::metadata::Workspace;
use crate::{Outcome, command, tools};

/// What is to be fuzzed, and for how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// The targets; all of them unless some are named.
    targets: Vec<String>,
}

/// Runs the targets one after the other, up to the first that finds something.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Outcome {
    let program = tools::find_or_install(workspace, "cargo-fuzz")?;
    let folder = workspace.root.join("fuzz");
    let all = targets(&program, &folder)?;
    let unknown = options.targets.iter().find(|target| !all.contains(target));
    if let Some(target) = unknown {
        return Err(format!("no target {target}: there are {}", all.join(", ")).into());
    }
    let chosen = if options.targets.is_empty() {
        &all
    } else {
        &options.targets
    };
    for target in chosen {
        println!("== {target}");
        command::run(&mut fuzzing(
            workspace,
            &program,
            &folder,
            target,
            options.seconds,
        ))?;
    }
    Ok(())
}

fn targets(program: &Path, folder: &Path) -> Outcome<Vec<String>> {
    let list = command::output(
        Command::new(program)
            .current_dir(folder)
            .args(["fuzz", "list"]),
    )?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// Fuzzes with the corpus of this machine, which begins with the seeds.
fn fuzzing(
    workspace: &Workspace,
    program: &Path,
    folder: &Path,
    target: &str,
    seconds: u32,
) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        // Instrumentation is for nightly compilers, or for those that are told so.
        .env("RUSTC_BOOTSTRAP", "1")
        // There is no unsafe code of ours for a sanitizer to look at, and without it more is run.
        .args(["fuzz", "run", "--sanitizer", "none", "--target-dir"])
        .arg(workspace.target.join("fuzz"))
        .arg(target)
        .arg(format!("corpus/{target}"));
    let seeds = format!("seeds/{target}");
    if folder.join(&seeds).is_dir() {
        command.arg(seeds);
    }
    // cargo-fuzz makes the folder of its default corpus only.
    let _ = fs::create_dir_all(folder.join("corpus").join(target));
    command
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        .args(["-print_final_stats=1", "-print_funcs=0", "-verbosity=0"]);
    command
}
