//! The documents say what the code does.

use std::path::{Path, PathBuf};

const FRONT_PAGE: &str = include_str!("../src/lib.rs");
const FACTS: &str = include_str!("../../../docs/facts.md");
const GUARANTEES: &str = include_str!("../../../docs/guarantees.md");
const README: &str = include_str!("../../../README.md");
const DEPLOYMENT: &str = include_str!("../../../docs/deployment.md");
const MATRIX: &str = include_str!("../../../docs/performance-matrix.csv");
const LAYER: &str = include_str!("../../tower-idempotency-core/src/layer.rs");

/// The example of the README is part of the one on the front page, which is compiled.
#[test]
fn the_readme_shows_what_is_compiled() {
    let (_, example) = README.split_once("```rust\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let lines = example
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let compiled: Vec<&str> = FRONT_PAGE.lines().map(str::trim).collect();
    let mut seen = 0;
    for line in lines {
        assert!(compiled.contains(&line), "not on the front page: {line}");
        seen += 1;
    }
    assert!(seen > 15);
}

/// The front page names every setting of the layer.
#[test]
fn the_front_page_has_every_setting() {
    let settings: Vec<&str> = LAYER
        .lines()
        .filter_map(|line| line.strip_prefix("    pub fn "))
        .filter_map(|line| line.split_once('('))
        .map(|(name, _)| name)
        .filter(|name| !["new", "with_store"].contains(name))
        .collect();
    assert!(settings.len() > 20, "{settings:?}");
    for setting in settings {
        assert!(
            FRONT_PAGE.contains(setting),
            "not on the front page: {setting}"
        );
    }
}

/// How much the databases do beside PostgreSQL is as it was measured last.
#[test]
fn the_databases_do_as_much_as_was_measured() {
    let rate = |database: &str, case: &str| -> f64 {
        let cell = format!("\"{database}\",{case},16,1024,ours,");
        let line = MATRIX.lines().find_map(|line| line.strip_prefix(&cell));
        let rate = line.and_then(|line| line.split(',').nth(3));
        rate.expect("a cell").parse().expect("a number")
    };
    for database in ["MariaDB", "SQLite"] {
        let [new_key, replay] =
            ["new key", "replay"].map(|case| rate(database, case) / rate("PostgreSQL", case));
        let row = format!("| {database} | {new_key:.2} | {replay:.2} |");
        assert!(
            DEPLOYMENT.contains(&row),
            "not in docs/deployment.md: {row}"
        );
    }
}

/// Every test that the documents name is there, in a file or folder of that name.
#[test]
fn the_documents_name_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    for folder in ["tests", "crates", "examples"] {
        collect(&root.join(folder), &mut sources);
    }
    for (document, least) in [(GUARANTEES, 40), (FACTS, 80)] {
        let named = document
            .split('`')
            .filter_map(|name| name.split_once("::"))
            .filter(|(file, _)| is_name(file) && *file != "file");
        let mut seen = 0;
        for (file, test) in named {
            assert!(is_there(&sources, file, test), "no test {file}::{test}");
            seen += 1;
        }
        assert!(seen > least, "{seen}");
    }
}

/// Whether it is written as a file is, and not as a type.
fn is_name(file: &str) -> bool {
    file.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// Whether a file or folder of that name has a test of that name.
fn is_there(sources: &[(PathBuf, String)], file: &str, test: &str) -> bool {
    let function = format!("fn {test}");
    sources.iter().any(|(path, text)| {
        let stem = path.file_stem().is_some_and(|stem| stem == file);
        let parent = path.parent().and_then(Path::file_name);
        let there = stem || parent.is_some_and(|parent| parent == file);
        let end = |rest: &str| rest.starts_with(['(', '<']);
        there
            && text
                .match_indices(&function)
                .any(|(at, _)| end(&text[at + function.len()..]))
    })
}

/// All Rust files below a folder, with their text.
fn collect(folder: &Path, sources: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if !path.is_symlink() && path.file_name().is_some_and(|name| name != "target") {
                collect(&path, sources);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("text");
            sources.push((path, text));
        }
    }
}
