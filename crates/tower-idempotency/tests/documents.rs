//! The documents say what the code does.

const FRONT_PAGE: &str = include_str!("../src/lib.rs");
const README: &str = include_str!("../../../README.md");
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
