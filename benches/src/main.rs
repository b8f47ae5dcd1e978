//! What the layer costs, side by side with bare handlers and with its protocol written by hand. Run by `cargo xtask bench`; `docs/performance.md` says what came of it.

mod figures;
mod report;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use benches::cell::Cell;
use benches::database::PostgresEngine;
use benches::sheet;
use clap::Parser;

use figures::{
    Bench, against, growth, in_memory, matrix, profile, purge, round_trips, size, waiting,
};
use report::Report;

/// Measures what the layer costs.
#[derive(Parser)]
struct Arguments {
    /// Takes less than four minutes: shorter turns, smaller tables.
    #[arg(long)]
    quick: bool,
    /// Only the figures and databases whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
    /// Prints where the time goes as well.
    #[arg(long)]
    profile: bool,
    /// Measures everybody side by side as well, on SQLite and MariaDB: five minutes.
    #[arg(long)]
    matrix: bool,
    /// Measures nothing, and draws the chart in that folder anew.
    #[arg(long)]
    redraw: Option<PathBuf>,
    /// The folder that figures and chart are written to.
    #[arg(long)]
    write: Option<PathBuf>,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(folder) = arguments.redraw {
        return ended(sheet::redraw(&folder), &folder);
    }
    let mut bench = Bench {
        quick: arguments.quick,
        postgres: PostgresEngine::start(),
        report: Report::default(),
    };
    let begun = Instant::now();
    let any = AtomicBool::new(false);
    let wanted = |name: &str| {
        let wanted = name.contains(&arguments.only);
        if wanted {
            any.store(true, Ordering::Relaxed);
            eprintln!("-- {name} ({:.0?})", begun.elapsed());
        }
        wanted
    };
    if wanted("round trips") {
        round_trips::measure(&mut bench).await;
    }
    if wanted("new key by hand") {
        against::by_hand(&mut bench).await;
    }
    if wanted("replay") {
        against::read(&mut bench).await;
    }
    if wanted("processor and allocations") {
        in_memory::measure(&mut bench);
    }
    if wanted("waiting") {
        waiting::measure(&mut bench).await;
    }
    if wanted("growth") {
        growth::measure(&mut bench).await;
    }
    if wanted("size") {
        size::measure(&mut bench).await;
    }
    if wanted("in flight") {
        in_memory::in_flight(&mut bench).await;
    }
    if wanted("purge") {
        purge::measure(&mut bench).await;
    }
    if wanted("new key over http") {
        against::bare(&mut bench).await;
    }
    if arguments.profile && wanted("profile") {
        profile::print(&bench).await;
    }
    let cells = match arguments.matrix {
        true => matrix::measure(&wanted).await,
        false => Vec::new(),
    };
    if !any.load(Ordering::Relaxed) {
        eprintln!(
            "error: nothing that is measured has {:?} in its name",
            arguments.only
        );
        return ExitCode::FAILURE;
    }
    eprintln!("-- done ({:.0?})", begun.elapsed());
    if let Some(folder) = arguments.write
        && let written @ Err(_) = write(&bench, arguments.only.is_empty(), cells, &folder)
    {
        return ended(written, &folder);
    }
    let short: Vec<String> = bench.report.short().map(ToString::to_string).collect();
    if short.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("\nfalls short:\n{}", short.join("\n"));
    ExitCode::FAILURE
}

fn ended(outcome: Result<(), Box<dyn Error>>, folder: &Path) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// Figures are written only where all of them were measured.
fn write(
    bench: &Bench,
    whole: bool,
    cells: Vec<Cell>,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    if whole {
        fs::write(folder.join("performance-figures.csv"), bench.report.csv())?;
    }
    match cells.is_empty() {
        true => Ok(()),
        false => sheet::write(cells, folder),
    }
}
