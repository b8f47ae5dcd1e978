//! What each fence and check is there for.

use std::collections::BTreeSet;

use protocol_model::{TABLE, Verdict, table};

/// R50, R32: without any one fence or check some promise is broken, and this is how. Where none is,
/// every state has been visited, and another fence makes up for it.
#[test]
fn every_mutant_is_as_the_table_says() {
    let verdicts: Vec<Verdict> = TABLE.iter().map(|line| line.judge()).collect();
    for verdict in &verdicts {
        println!("{:?}: {}", verdict.line.mutant, verdict.line.what);
        if let Some(trace) = &verdict.caught {
            println!("{trace}");
        }
        if let Some(exploration) = &verdict.survived {
            println!("  {exploration}\n");
        }
    }
    println!("{}", table(&verdicts));
    let unexpected = verdicts.iter().filter(|verdict| !verdict.is_as_expected());
    let unexpected: Vec<_> = unexpected.map(|verdict| verdict.line.mutant).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

/// The table names each mutant once.
#[test]
fn table_has_no_line_twice() {
    let names: BTreeSet<_> = TABLE.iter().map(|line| line.what).collect();
    assert_eq!(names.len(), TABLE.len());
}
