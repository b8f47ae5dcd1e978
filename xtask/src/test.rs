//! `cargo xtask test`

use std::path::PathBuf;

use tokio::runtime::Runtime;
use tokio::signal::ctrl_c;

use crate::engines::Engines;
use crate::metadata::Workspace;
use crate::{Outcome, command};

/// Runs all tests on real databases.
pub(crate) fn run(
    workspace: &Workspace,
    postgres: Option<PathBuf>,
    arguments: &[String],
) -> Outcome {
    Runtime::new()?.block_on(async {
        let engines = Engines::start(postgres).await?;
        let tested = test(workspace, arguments, &engines).await;
        engines.stop().await?;
        tested
    })
}

async fn test(workspace: &Workspace, arguments: &[String], engines: &Engines) -> Outcome {
    let mut command = command::cargo(workspace);
    command
        .args(["test", "--no-fail-fast", "--all-features"])
        // Cargo would run the others as well.
        .args((!names_packages(arguments)).then_some("--workspace"))
        .args(arguments);
    let shown = command::shown(&command);
    let mut child = tokio::process::Command::from(command)
        .envs(engines.variables())
        .spawn()?;
    let mut interrupted = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            // The terminal tells cargo and the tests as well: what is left is to wait for them.
            signal = ctrl_c() => {
                signal?;
                interrupted = true;
            }
        }
    };
    match (interrupted, status.success()) {
        (true, _) => Err("interrupted".into()),
        (false, true) => Ok(()),
        (false, false) => Err(format!("{shown}: {status}").into()),
    }
}

/// Whether the arguments for cargo say which packages to test.
fn names_packages(arguments: &[String]) -> bool {
    arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument.starts_with("-p") || argument.starts_with("--package"))
}

#[cfg(test)]
mod tests {
    use super::names_packages;

    /// What is meant for the tests themselves is not taken for cargo's.
    #[test]
    fn packages_are_named_before_the_dashes() {
        let named = |words: &str| {
            let arguments: Vec<_> = words.split(' ').map(String::from).collect();
            names_packages(&arguments)
        };
        assert!(named("-p test-support"));
        assert!(named("proxy --package=test-support"));
        assert!(!named("proxy -- --package"));
    }
}
