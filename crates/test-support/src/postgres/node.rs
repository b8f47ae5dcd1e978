//! A PostgreSQL server that crashes, comes back, and follows another.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

use super::Binaries;
use super::server::ServerSettings;
use crate::daemon::{Daemon, DaemonError, free_address};

/// A server of a cluster, in a folder of its own, that ends with this process.
///
/// A standby follows its primary under the name `standby`, which `synchronous_standby_names` may
/// have in it.
#[derive(Debug)]
pub struct PostgresNode {
    daemon: Daemon,
    binaries: Binaries,
    settings: ServerSettings,
    address: SocketAddr,
}

impl PostgresNode {
    /// Starts a server with a new database.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub async fn primary(
        binaries: &Binaries,
        settings: &ServerSettings,
    ) -> Result<Self, DaemonError> {
        let mut node = Self::new(binaries, settings)?;
        let initdb = node.program("initdb");
        let words = "-D data -A trust -U postgres -N --no-locale -E UTF8";
        let words: Vec<_> = [&*initdb].into_iter().chain(words.split(' ')).collect();
        node.daemon.run(&words).await?;
        node.configure().await?;
        node.restart().await?;
        Ok(node)
    }

    /// Starts a server that follows another.
    ///
    /// # Errors
    ///
    /// It does not start, or the installation has no `pg_basebackup`.
    pub async fn standby(
        binaries: &Binaries,
        settings: &ServerSettings,
        primary: SocketAddr,
    ) -> Result<Self, DaemonError> {
        let mut node = Self::new(binaries, settings)?;
        node.follow(primary).await?;
        Ok(node)
    }

    fn new(binaries: &Binaries, settings: &ServerSettings) -> Result<Self, DaemonError> {
        let daemon = Daemon::new("postgres", super::ENGINE.users)?;
        let address = free_address().map_err(|error| daemon.failed(error.to_string()))?;
        Ok(Self {
            daemon,
            binaries: binaries.clone(),
            settings: settings.clone(),
            address,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.daemon.folder()
    }

    /// The URL of its database `postgres`, as a superuser.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address)
    }

    /// Kills it as when its machine loses power.
    ///
    /// # Errors
    ///
    /// Its keeper is gone.
    pub async fn crash(&mut self) -> Result<(), DaemonError> {
        self.daemon.crash().await
    }

    /// Shuts it down as an operator does: transactions are rolled back, and clients are told.
    ///
    /// # Errors
    ///
    /// Its keeper is gone.
    pub async fn shut_down(&mut self) -> Result<(), DaemonError> {
        self.daemon.end("INT").await
    }

    /// Starts it again after it went down, and returns when it lets clients in.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub async fn restart(&mut self) -> Result<(), DaemonError> {
        let postgres = self.program("postgres");
        self.daemon.start(&[&postgres, "-D", "data"]).await?;
        let url = self.url();
        self.daemon.until(|| is_up(&url)).await
    }

    /// Throws its data away, and follows a primary from now on. It must not run.
    ///
    /// # Errors
    ///
    /// The primary cannot be copied, or it does not start.
    pub async fn follow(&mut self, primary: SocketAddr) -> Result<(), DaemonError> {
        let (ip, port) = (primary.ip(), primary.port());
        let from = format!("host={ip} port={port} user=postgres application_name=standby");
        let pg_basebackup = self.program("pg_basebackup");
        self.daemon.run(&["rm", "-rf", "data"]).await?;
        let words = [&*pg_basebackup, "-d", &from];
        let more = [
            "-D",
            "data",
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
        ];
        self.daemon.run(&[&words[..], &more].concat()).await?;
        self.configure().await?;
        self.restart().await
    }

    /// Makes a standby of it that follows nobody, and never will be more than it is. It must not
    /// run.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub async fn be_read_only(&mut self) -> Result<(), DaemonError> {
        self.daemon.run(&["touch", "data/standby.signal"]).await?;
        self.restart().await
    }

    /// Stops it and removes its folder.
    pub async fn stop(self) {
        self.daemon.stop().await;
    }

    async fn configure(&mut self) -> Result<(), DaemonError> {
        let settings = self.settings.file(self.daemon.folder(), self.address);
        self.daemon.write("settings", &settings)?;
        let append = "cat settings >>data/postgresql.conf";
        self.daemon.run(&["sh", "-c", append]).await
    }

    fn program(&self, name: &str) -> String {
        let program = self.binaries.folder().join(name);
        program.to_string_lossy().into_owned()
    }
}

async fn is_up(url: &str) -> bool {
    let connected = timeout(Duration::from_secs(1), PgConnection::connect(url)).await;
    match connected {
        Ok(Ok(connection)) => connection.close().await.is_ok(),
        Ok(Err(_)) | Err(_) => false,
    }
}
