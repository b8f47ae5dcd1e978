//! A durable PostgreSQL server of our own, which can be restarted.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

use rustix::process::geteuid;
use test_support::{Binaries, PostgresServer, ServerSettings};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::spawn_blocking;

use crate::Outcome;

/// The server, and a shell that restarts it. Both end with this process, however that ends.
pub(crate) struct Cluster {
    server: PostgresServer,
    shell: Child,
    orders: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
}

impl Cluster {
    pub(crate) async fn start(binaries: Binaries) -> Outcome<Self> {
        let folder = binaries.folder().to_owned();
        let settings = ServerSettings::default().durable();
        let server =
            spawn_blocking(move || PostgresServer::start_with(&binaries, &settings)).await??;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", include_str!("restart.sh"), "restart"])
            .args([&folder, server.folder()])
            .current_dir(server.folder())
            // A Ctrl-C at the terminal must not kill the shell before it has stopped the server.
            .process_group(0)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let owner = std::fs::metadata(server.folder())?;
        if owner.uid() != geteuid().as_raw() {
            command.uid(owner.uid()).gid(owner.gid());
        }
        let mut shell = command.spawn()?;
        let (orders, words) = (shell.stdin.take(), shell.stdout.take());
        let (Some(orders), Some(words)) = (orders, words) else {
            return Err("no pipes".into());
        };
        let words = BufReader::new(words).lines();
        Ok(Self {
            server,
            shell,
            orders,
            words,
        })
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Stops the server at once, as a crash would, and returns when another is ready on its folder
    /// and port.
    pub(crate) async fn restart(&mut self) -> Outcome {
        self.orders.write_all(b"restart\n").await?;
        match self.words.next_line().await? {
            Some(_) => Ok(()),
            None => Err("the PostgreSQL server did not come back".into()),
        }
    }

    pub(crate) async fn stop(mut self) -> Outcome {
        drop(self.orders);
        self.shell.wait().await?;
        spawn_blocking(|| self.server.stop()).await?;
        Ok(())
    }
}
