//! cargo-deny: licences, duplicates, sources, and advisories where their database can be had.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::metadata::Workspace;
use crate::{Outcome, command};

/// The check that needs no network.
pub(crate) const CHECK: &str = "cargo deny check bans licenses sources";

/// Checks the tree of dependencies. Returns a remark if a part of it could not be done.
pub(crate) fn check(workspace: &Workspace) -> Outcome<Option<&'static str>> {
    let program = find_or_install(workspace)?;
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(&workspace.root).args(arguments);
        command
    };
    command::run(&mut deny(&[
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    if command::succeeds(&mut deny(&["fetch", "db"])) {
        command::run(&mut deny(&["check", "--disable-fetch", "advisories"]))?;
        Ok(None)
    } else {
        println!("advisories are not checked: their database cannot be fetched from here");
        Ok(Some("without advisories"))
    }
}

/// The cargo-deny of the developer, or one below the target folder.
fn find_or_install(workspace: &Workspace) -> Outcome<PathBuf> {
    let tools = workspace.target.join("tools");
    let ours = tools.join("bin/cargo-deny");
    let found = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("cargo-deny"))
        .chain([ours.clone()])
        .find(|program| program.is_file());
    if let Some(program) = found {
        return Ok(program);
    }
    println!("installing cargo-deny into {}", tools.display());
    let mut install = command::cargo(workspace);
    install
        .args(["install", "--quiet", "--locked", "cargo-deny", "--root"])
        .arg(&tools);
    command::run(&mut install)?;
    Ok(ours)
}
