//! A program of somebody else's, in a folder of its own.

use std::error::Error;
use std::fmt;
use std::fs;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep};

use crate::folder::{FolderError, make_folder};

/// A program that runs as long as this, and may be killed and started again meanwhile.
///
/// A shell holds the other end of a pipe to this process. When the pipe closes, by
/// [`stop`](Daemon::stop), by drop or because the process is no more, the shell kills the program
/// with all that it started, and removes its folder.
#[derive(Debug)]
pub struct Daemon {
    shell: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    folder: PathBuf,
    name: &'static str,
}

/// Why a program does not run. Displays the last line of its log.
#[derive(Debug)]
pub struct DaemonError {
    name: &'static str,
    why: String,
}

/// How long a program may take to be ready.
const PATIENCE: Duration = Duration::from_secs(90);

impl Daemon {
    /// Makes the folder. Where we are root, what runs in it runs as the first of these users that
    /// there is.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, or there is no such user.
    pub fn new(name: &'static str, users: &[&str]) -> Result<Self, DaemonError> {
        let failed = |why: String| DaemonError { name, why };
        let (folder, user) = make_folder(name, users).map_err(|error| match error {
            FolderError::NoUser => failed("it refuses to run as root".to_owned()),
            FolderError::Io(what, error) => failed(format!("could not {what}: {error}")),
        })?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", include_str!("daemon.sh"), "daemon"])
            .arg(&folder)
            .current_dir(&folder)
            // A Ctrl-C at the terminal must not kill the shell before it has cleaned up.
            .process_group(0)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(user) = user {
            command.uid(user.uid).gid(user.gid);
        }
        let mut shell = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (orders, answers) = (shell.stdin.take(), shell.stdout.take());
        let (Some(orders), Some(answers)) = (orders, answers) else {
            return Err(failed("it has no pipes".to_owned()));
        };
        Ok(Self {
            shell,
            orders,
            answers: BufReader::new(answers).lines(),
            folder,
            name,
        })
    }

    /// Where it runs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file into the folder, readable for all.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, name: &str, content: &str) -> Result<(), DaemonError> {
        fs::write(self.folder.join(name), content).map_err(|error| self.failed(error.to_string()))
    }

    /// Runs a command to its end, in the folder and as the program's user.
    ///
    /// # Errors
    ///
    /// It fails.
    pub async fn run(&mut self, words: &[&str]) -> Result<(), DaemonError> {
        self.expect(&format!("run {}", quoted(words))).await
    }

    /// Starts the program. It must not run.
    ///
    /// # Errors
    ///
    /// The shell is gone.
    pub async fn start(&mut self, words: &[&str]) -> Result<(), DaemonError> {
        self.expect(&format!("start {}", quoted(words))).await
    }

    /// Asks until the program is ready, which no event tells.
    ///
    /// # Errors
    ///
    /// It ends before, or takes too long.
    pub async fn until<F: Future<Output = bool> + Send>(
        &mut self,
        ready: impl Fn() -> F + Send,
    ) -> Result<(), DaemonError> {
        let deadline = Instant::now() + PATIENCE;
        while !ready().await {
            self.expect("alive").await?;
            if Instant::now() >= deadline {
                return Err(self.failed(format!("not ready in time: {}", self.last_line())));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Asks the program to end by a signal, such as `INT`, and returns when it has. Its folder
    /// stays.
    ///
    /// # Errors
    ///
    /// The shell is gone.
    pub async fn end(&mut self, signal: &str) -> Result<(), DaemonError> {
        self.expect(&format!("stop {signal}")).await
    }

    /// Kills the program and all that it started. Its folder stays.
    ///
    /// # Errors
    ///
    /// The shell is gone.
    pub async fn crash(&mut self) -> Result<(), DaemonError> {
        self.expect("crash").await
    }

    /// Kills it, and returns when its folder is gone.
    pub async fn stop(mut self) {
        drop(self.orders);
        // Nothing can be done about a shell that cannot be waited for.
        self.shell.wait().await.ok();
    }

    async fn expect(&mut self, order: &str) -> Result<(), DaemonError> {
        let answer = match self.orders.write_all(format!("{order}\n").as_bytes()).await {
            Ok(()) => self.answers.next_line().await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(Some(answer)) if answer == "0" => Ok(()),
            Ok(Some(_)) => Err(self.failed(self.last_line())),
            Ok(None) => Err(self.failed("its shell is gone")),
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    pub(crate) fn failed(&self, why: impl Into<String>) -> DaemonError {
        DaemonError::new(self.name, why)
    }

    /// The last line of the log that says anything.
    fn last_line(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let line = log.lines().rfind(|line| !line.trim().is_empty());
        line.unwrap_or("its log is empty").to_owned()
    }
}

/// Words as a shell reads them.
fn quoted(words: &[&str]) -> String {
    let quoted = words
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

/// Below those that Linux and others give to outgoing connections: a server that comes back finds its
/// port as it left it.
const PORTS: Range<u16> = 10_000..32_000;

/// An address of `127.0.0.1` that was free a moment ago, and that no connection takes meanwhile.
///
/// # Errors
///
/// There is no free port.
pub fn free_address() -> io::Result<SocketAddr> {
    // No two of this process are the same, and those of two processes are far apart.
    static NEXT: LazyLock<AtomicU64> =
        LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(()) >> 1));
    let count = u64::from(PORTS.end - PORTS.start);
    for _ in PORTS {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % count;
        let port = PORTS.start + u16::try_from(offset).unwrap_or_default();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound?.local_addr(),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

impl DaemonError {
    pub(crate) fn new(name: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { name, why }
    }
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl Error for DaemonError {}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::future::ready;

    use super::Daemon;

    /// A program can be killed and started again in its folder, with what it started; a command's
    /// failure is told with its last words; and nothing is left.
    #[tokio::test]
    async fn a_daemon_lives_dies_and_leaves_nothing() -> Result<(), Box<dyn Error>> {
        let mut daemon = Daemon::new("sleeper", &["nobody"])?;
        let wrong = daemon
            .run(&["sh", "-c", "echo 'it'\\''s wrong'; exit 3"])
            .await;
        let error = wrong.expect_err("it exits with 3");
        assert_eq!(error.to_string(), "sleeper: it's wrong");

        let folder = daemon.folder().to_owned();
        let child = folder.join("child");
        for _ in 0..2 {
            let sleeping = "sleep 600 & echo $! >child; wait";
            daemon.start(&["sh", "-c", sleeping]).await?;
            daemon
                .until(|| ready(std::fs::exists(&child).unwrap_or(false)))
                .await?;
            daemon.run(&["sh", "-c", "kill -0 $(cat child)"]).await?;
            daemon.crash().await?;
            daemon
                .run(&["sh", "-c", "! kill -0 $(cat child) && rm child"])
                .await?;
        }
        let ended = daemon.until(|| ready(false)).await;
        assert!(ended.is_err(), "it does not run");
        daemon.stop().await;
        assert!(!folder.exists());
        Ok(())
    }
}
