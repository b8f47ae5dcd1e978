//! Subcommands of cargo that tasks need: the developer's, or else ours below the target folder.

use std::env;
use std::path::PathBuf;

use crate::metadata::Workspace;
use crate::{Outcome, command};

/// The program of that name, installed if it has to be.
pub(crate) fn find_or_install(workspace: &Workspace, name: &str) -> Outcome<PathBuf> {
    let tools = workspace.target.join("tools");
    let ours = tools.join("bin").join(name);
    let found = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join(name))
        .chain([ours.clone()])
        .find(|program| program.is_file());
    if let Some(program) = found {
        return Ok(program);
    }
    println!("installing {name} into {}", tools.display());
    let mut install = command::cargo(workspace);
    install
        .args(["install", "--quiet", "--locked", name, "--root"])
        .arg(&tools);
    command::run(&mut install)
        .map_err(|error| format!("no {name}: install it with `cargo install {name}` ({error})"))?;
    Ok(ours)
}
