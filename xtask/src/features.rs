//! Each feature alone.

use std::process::Command;

use crate::command;
use crate::metadata::Workspace;

/// The commands that check each published crate without features, and with each one by itself.
pub(crate) fn commands(workspace: &Workspace) -> Vec<Command> {
    let mut commands = Vec::new();
    for package in workspace.published() {
        for feature in [None].into_iter().chain(package.features().map(Some)) {
            let mut command = command::cargo(workspace);
            // Clippy does all that `cargo check` does, and can deny warnings in our crates alone.
            command.args(["clippy", "--quiet", "--no-default-features"]);
            command.args(["--package", &package.name]);
            if let Some(feature) = feature {
                command.args(["--features", feature]);
            }
            command.args(["--", "-D", "warnings"]);
            commands.push(command);
        }
    }
    commands
}
