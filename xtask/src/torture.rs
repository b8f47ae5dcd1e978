//! `cargo xtask torture`

use tokio::runtime::Runtime;
use tokio::signal::ctrl_c;

use crate::engines::Engines;
use crate::metadata::Workspace;
use crate::{Outcome, command};

/// Tortures server processes on real databases.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Outcome {
    Runtime::new()?.block_on(async {
        let engines = Engines::start(None).await?;
        let tortured = torture(workspace, arguments, &engines.variables()).await;
        engines.stop().await?;
        tortured
    })
}

/// Runs the crate of that name, and waits for it also when it is interrupted.
pub(crate) async fn torture(
    workspace: &Workspace,
    arguments: &[String],
    variables: &[(&str, String)],
) -> Outcome {
    let mut command = command::cargo(workspace);
    command
        .args(["run", "--quiet", "--package", "torture", "--"])
        .args(arguments);
    let shown = command::shown(&command);
    let mut child = tokio::process::Command::from(command)
        .envs(variables.iter().cloned())
        .spawn()?;
    tokio::select! {
        status = child.wait() => match status? {
            status if status.success() => Ok(()),
            status => Err(format!("{shown}: {status}").into()),
        },
        // The terminal tells cargo and the torture as well: what is left is to wait for them.
        signal = ctrl_c() => {
            signal?;
            child.wait().await?;
            Err("interrupted".into())
        }
    }
}
