//! The service as a child process.

use std::env;
use std::error::Error;
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::tally::Tally;

pub(super) struct Service {
    database: String,
    process: Child,
    base: String,
    tally: Arc<Tally>,
}

impl Service {
    pub(super) async fn start(database: String, tally: Arc<Tally>) -> Result<Self, Box<dyn Error>> {
        let (process, base) = spawn(&database, "127.0.0.1:0", &tally).await?;
        Ok(Self {
            database,
            process,
            base,
            tally,
        })
    }

    /// Where it listens, whichever process it is.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Kills the process with whatever it is doing, and starts another at the same address.
    pub(super) async fn kill_and_restart(&mut self) -> Result<(), Box<dyn Error>> {
        self.process.kill().await?;
        self.tally.killed();
        let address = self.base.trim_start_matches("http://");
        let (process, _) = spawn(&self.database, address, &self.tally).await?;
        self.process = process;
        Ok(())
    }

    pub(super) async fn stop(mut self) {
        // Nothing is in flight any more.
        let _ = self.process.kill().await;
    }
}

/// Starts the service, and counts the take-overs that it logs.
async fn spawn(
    database: &str,
    listen: &str,
    tally: &Arc<Tally>,
) -> Result<(Child, String), Box<dyn Error>> {
    let mut process = Command::new(env::current_exe()?)
        .env("DATABASE_URL", database)
        .env("LISTEN", listen)
        .env("STALE_AFTER", "2")
        .env("RUST_LOG", "warn,sqlx=error")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
        return Err("no pipes".into());
    };

    let tally = Arc::clone(tally);
    let logged = tokio::spawn(async move {
        let mut last = String::new();
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if line.contains("stale claim taken over") {
                tally.taken_over();
            }
            last = line;
        }
        last
    });
    let mut lines = BufReader::new(stdout).lines();
    let Some(line) = lines.next_line().await? else {
        return Err(format!("the service did not start: {}", logged.await?).into());
    };
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let base = line
        .split(' ')
        .nth(2)
        .ok_or("the service did not say where it listens")?;
    Ok((process, base.to_owned()))
}
