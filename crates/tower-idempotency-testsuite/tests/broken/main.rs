//! Stores with one flaw each, and the behaviour that each must fail.

mod fence;
mod fixture;
mod flaw;
mod rows;
mod store;
mod table;
mod trial;
mod tx;

use std::collections::BTreeSet;

use tower_idempotency_testsuite::behaviours;

use crate::fixture::FlawedFixture;
use crate::flaw::Flaw;
use crate::table::MEANT;
use crate::trial::failure;

mod none {
    use tower_idempotency_testsuite::contract;

    use crate::fixture::FlawedFixture;
    use crate::flaw::Flaw;

    // Without a flaw the store keeps the contract: what the others fail is their flaw.
    contract!(FlawedFixture::new(Flaw::None));
}

/// Every broken store fails at the behaviour that is meant for it, with the reason that is meant.
#[test]
fn every_flaw_is_seen_where_it_is_meant_to_be() {
    let mut wrong = Vec::new();
    for (flaw, behaviour, reason) in MEANT {
        match failure(*flaw, behaviour) {
            None => wrong.push(format!("{flaw:?} passes {behaviour}")),
            Some(message) if message.contains(reason) => {}
            Some(message) => wrong.push(format!(
                "{flaw:?} fails {behaviour} for another reason than {reason:?}: {message}"
            )),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// No behaviour is there for nothing: each is the one that some broken store is meant to fail.
#[test]
fn every_behaviour_sees_a_flaw() {
    let meant: BTreeSet<_> = MEANT.iter().map(|(_, behaviour, _)| *behaviour).collect();
    let listed: BTreeSet<_> = behaviours::all::<FlawedFixture>()
        .iter()
        .map(behaviours::Behaviour::name)
        .collect();
    assert_eq!(meant, listed);
}

/// Prints which behaviours each broken store fails: `cargo test --test broken matrix -- --nocapture`.
#[test]
fn matrix() {
    let mut flaws: Vec<Flaw> = MEANT.iter().map(|(flaw, ..)| *flaw).collect();
    flaws.dedup();
    let failed = trial::failures(&flaws);
    for flaw in flaws {
        let failed: Vec<_> = failed.iter().filter(|(of, ..)| *of == flaw).collect();
        assert!(!failed.is_empty(), "{flaw:?} keeps the contract");
        println!("{flaw:?} fails {}", failed.len());
        for (_, behaviour, message) in failed {
            println!(
                "    {behaviour}: {}",
                message.lines().next().unwrap_or_default()
            );
        }
    }
}
