//! Prints the counterexample of every mutant, and the table of them:
//! `cargo run --release -p protocol-model`.

use std::process::ExitCode;

use protocol_model::{Limits, Model, TABLE, Verdict, table};

fn main() -> ExitCode {
    let mut verdicts: Vec<Verdict> = Vec::new();
    for line in TABLE {
        let verdict = line.judge();
        println!("{:?}: {}", line.mutant, line.what);
        if let Some(trace) = &verdict.caught {
            println!("{trace}");
        }
        if let Some(exploration) = &verdict.survived {
            println!("  {exploration}\n");
        }
        verdicts.push(verdict);
    }
    println!("{}", table(&verdicts));
    let four = Limits {
        arrivals: 4,
        running: 2,
        erasures: 0,
        ..Limits::THREE_AT_ONCE
    };
    let two_cuts = Limits {
        cuts: 2,
        ..Limits::THREE_AT_ONCE
    };
    let mut sound = true;
    for limits in [Limits::THREE_AT_ONCE, four, two_cuts] {
        let exploration = Model::faithful(limits).explore();
        println!("the protocol as it is: {exploration}");
        sound &= exploration.broken.is_empty() && exploration.missed.is_empty();
    }
    if sound && verdicts.iter().all(Verdict::is_as_expected) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
