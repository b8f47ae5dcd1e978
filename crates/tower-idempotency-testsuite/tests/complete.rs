//! No behaviour is left out of the list.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tower_idempotency_testsuite::{MemoryFixture, behaviours};

/// Every function of the behaviours' modules is in the list, once, and has a doc line.
#[test]
fn every_behaviour_is_listed_and_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/behaviours");
    let mut written = BTreeSet::new();
    for file in fs::read_dir(folder).unwrap() {
        let source = fs::read_to_string(file.unwrap().path()).unwrap();
        let mut above = "";
        for line in source.lines() {
            if let Some(rest) = line.strip_prefix("pub async fn ") {
                let name = rest.split(['<', '(']).next().unwrap().to_owned();
                assert!(above.starts_with("/// "), "{name} has no doc line");
                assert!(written.insert(name), "{line} is there twice");
            }
            above = line;
        }
    }
    let all = behaviours::all::<MemoryFixture>();
    let listed: BTreeSet<_> = all.iter().map(|listed| listed.name().to_owned()).collect();
    assert_eq!(listed.len(), all.len(), "a behaviour is listed twice");
    assert_eq!(listed, written);
}
