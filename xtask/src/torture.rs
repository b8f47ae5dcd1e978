//! `cargo xtask torture`

use tokio::runtime::Runtime;
use tokio::signal::ctrl_c;

use crate::engines::Engines;
use crate::metadata::Workspace;
use crate::{Outcome, command};

/// Tortures server processes on real databases.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Outcome {
    Runtime::new()?.block_on(async {
        let engines = Engines::start().await?;
        let tortured = torture(workspace, arguments, &engines).await;
        engines.stop().await?;
        tortured
    })
}

async fn torture(workspace: &Workspace, arguments: &[String], engines: &Engines) -> Outcome {
    let mut command = command::cargo(workspace);
    command
        .args(["run", "--quiet", "--package", "torture", "--"])
        .args(arguments);
    let shown = command::shown(&command);
    let mut child = tokio::process::Command::from(command)
        .envs(engines.variables())
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
