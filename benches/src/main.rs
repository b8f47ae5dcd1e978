//! What the layer costs, side by side with bare handlers, with its protocol written by hand, and
//! with other crates. Run by `cargo xtask bench`; `docs/performance.md` says what came of it.

mod chart;
mod database;
mod figures;
mod load;
mod pairs;
mod post;
mod report;
mod stats;
mod subject;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use database::PostgresEngine;
use figures::matrix::Cell;
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
    /// Only the kinds of figures whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
    /// Prints where the time goes as well.
    #[arg(long)]
    profile: bool,
    /// Measures everybody side by side as well: ten minutes.
    #[arg(long)]
    matrix: bool,
    /// Measures nothing, and draws the chart in that folder anew.
    #[arg(long)]
    redraw: Option<PathBuf>,
    /// The folder that figures and chart are written to.
    #[arg(long)]
    write: Option<PathBuf>,
}

const MATRIX: &str = "performance-matrix.csv";
const CHART: &str = "performance.svg";

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(folder) = arguments.redraw {
        let redrawn = fs::read_to_string(folder.join(MATRIX))
            .map_err(Into::into)
            .and_then(|csv| chart::draw(&Cell::read(&csv), &folder.join(CHART)));
        return ended(redrawn, &folder);
    }
    let mut bench = Bench {
        quick: arguments.quick,
        postgres: PostgresEngine::start(),
        report: Report::default(),
    };
    let begun = Instant::now();
    let wanted = |name: &str| {
        let wanted = name.contains(&arguments.only);
        if wanted {
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
    if arguments.profile {
        profile::print(&bench).await;
    }
    let cells = match arguments.matrix {
        true => matrix::measure(&bench).await,
        false => Vec::new(),
    };
    eprintln!("-- done ({:.0?})", begun.elapsed());
    if let Some(folder) = arguments.write
        && let written @ Err(_) = write(&bench, &cells, &folder)
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

fn write(bench: &Bench, cells: &[Cell], folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::write(folder.join("performance-figures.csv"), bench.report.csv())?;
    if !cells.is_empty() {
        let lines: String = cells.iter().map(Cell::csv).collect();
        let csv = Cell::CSV_HEAD.to_owned() + &lines;
        fs::write(folder.join(MATRIX), csv)?;
        chart::draw(cells, &folder.join(CHART))?;
    }
    Ok(())
}
