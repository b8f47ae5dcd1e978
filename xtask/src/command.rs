//! Other programs.

use std::env;
use std::ffi::OsString;
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::metadata::Workspace;

/// The cargo that runs us.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(&workspace.root);
    command
}

/// Runs a command to its end, its output on the terminal.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let status = command
        .status()
        .map_err(|error| format!("{}: {error}", shown(command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{}: {status}", shown(command)).into())
    }
}

/// Runs a command to its end, and shows its output only if it fails.
pub(crate) fn run_quietly(command: &mut Command) -> Outcome {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", shown(command)))?;
    if output.status.success() {
        return Ok(());
    }
    eprint!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Err(format!("{}: {}", shown(command), output.status).into())
}

/// Runs a command, and returns what it prints.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{}: {error}", shown(command)))?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        Err(format!("{}: {}", shown(command), output.status).into())
    }
}

/// Whether a command can be run and succeeds, without a word.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A command as it is typed, without the folders of its program.
pub(crate) fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let mut line = String::new();
    for (variable, value) in command.get_envs() {
        if let (Some(variable), Some(value)) = (variable.to_str(), value.and_then(|v| v.to_str())) {
            line += &format!("{variable}={} ", quoted(value));
        }
    }
    line += &name.to_string_lossy();
    for argument in command.get_args() {
        line += " ";
        line += &quoted(&argument.to_string_lossy());
    }
    line
}

fn quoted(text: &str) -> String {
    if text.contains(' ') {
        format!("\"{text}\"")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::shown;

    /// A command is shown so that it can be pasted into a shell.
    #[test]
    fn a_command_can_be_repeated() {
        let mut command = Command::new("/some/where/cargo");
        command
            .args(["doc", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            shown(&command),
            "RUSTDOCFLAGS=\"-D warnings\" cargo doc --no-deps"
        );
    }
}
