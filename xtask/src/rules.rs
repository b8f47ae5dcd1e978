//! `cargo xtask rules`: every rule of protocol.md is named by a test, and no other.

mod protocol;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::metadata::Workspace;

/// Compares protocol.md with the doc lines of all tests.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let protocol = fs::read_to_string(workspace.root.join("protocol.md"))
        .map_err(|error| format!("protocol.md: {error}"))?;
    let rules = protocol::rules(&protocol)?;
    let mut complaints = Vec::new();
    let mut named = BTreeSet::new();
    for file in rust_files(&workspace.root)? {
        let text = fs::read_to_string(workspace.root.join(&file))?;
        for mention in source::mentions(&text, is_test_code(&file)) {
            let place = format!("{}:{}", file.display(), mention.line);
            match mention.rules {
                None => complaints.push(format!(
                    "{place}: a rule is named like this: `/// R1: ..` or `/// R1, R2: ..`"
                )),
                Some(numbers) => {
                    for rule in numbers {
                        if !rules.contains(&rule) {
                            complaints.push(format!("{place}: R{rule} is not in protocol.md"));
                        }
                        named.insert(rule);
                    }
                }
            }
        }
    }
    for rule in rules.difference(&named) {
        complaints.push(format!("protocol.md: R{rule} is named by no test"));
    }
    if complaints.is_empty() {
        println!("{} rules, each named by a test", rules.len());
        return Ok(());
    }
    for complaint in &complaints {
        println!("{complaint}");
    }
    Err(format!(
        "tests and protocol.md differ in {} places",
        complaints.len()
    )
    .into())
}

/// Whether each function of a file may be a test, though a macro and not an attribute makes it one.
fn is_test_code(file: &Path) -> bool {
    file.components().any(|component| {
        ["tests", "tower-idempotency-testsuite"]
            .iter()
            .any(|name| component.as_os_str() == *name)
    })
}

/// The Rust files of the workspace, as paths from its root. Those of this crate are left out:
/// its tests name rules that are made up.
fn rust_files(root: &Path) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (kind, name, path) = (entry.file_type()?, entry.file_name(), entry.path());
            let hidden = name.as_encoded_bytes().starts_with(b".");
            if kind.is_dir() && !hidden && name != "target" && name != "xtask" {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|end| end == "rs") {
                files.push(path.strip_prefix(root)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}
