//! cargo-deny: licences, duplicates, sources, and advisories where their database can be had.

use std::process::Command;

use crate::metadata::Workspace;
use crate::{Outcome, command, tools};

/// The check that needs no network.
pub(crate) const CHECK: &str = "cargo deny check bans licenses sources";

/// Checks the tree of dependencies. Returns a remark if a part of it could not be done.
pub(crate) fn check(workspace: &Workspace) -> Outcome<Option<&'static str>> {
    let program = tools::find_or_install(workspace, "cargo-deny")?;
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
