//! A server of our own, which ends with the process that started it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use super::{Binaries, ENGINE};
use crate::ServerError;
use crate::shell::{Recipe, Shell};

/// A PostgreSQL server in a temporary folder, on a unix socket there and on a port of
/// `127.0.0.1`. Any user of this machine may connect while it runs.
///
/// A shell holds the other end of a pipe to this process. When the pipe closes, by
/// [`stop`](PostgresServer::stop), by drop or because the process is no more, the shell stops the
/// server and removes the folder.
#[derive(Debug)]
pub struct PostgresServer(Shell);

/// What differs from a server's defaults.
///
/// By default `fsync` and `full_page_writes` are off, and 300 connections are let in.
#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    durable: bool,
    lines: String,
}

impl ServerSettings {
    /// Writes to disk as in production, for tests in which the server crashes.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Sets a parameter of `postgresql.conf`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        push(&mut self.lines, name, value);
        self
    }

    pub(super) fn file(&self, folder: &Path, address: SocketAddr) -> String {
        let mut file = String::new();
        push(&mut file, "listen_addresses", &address.ip().to_string());
        push(&mut file, "port", &address.port().to_string());
        let sockets = folder.to_string_lossy();
        push(&mut file, "unix_socket_directories", &sockets);
        push(&mut file, "max_connections", "300");
        if !self.durable {
            push(&mut file, "fsync", "off");
            push(&mut file, "full_page_writes", "off");
        }
        // The last line of a parameter counts.
        file + &self.lines
    }
}

fn push(file: &mut String, name: &str, value: &str) {
    let value = value.replace('\'', "''");
    writeln!(file, "{name} = '{value}'").expect("a string takes any text");
}

impl PostgresServer {
    /// Starts a server with the default settings. Blocks for about a second.
    ///
    /// # Errors
    ///
    /// See [`start_with`](Self::start_with).
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with(&Binaries::find()?, &ServerSettings::default())
    }

    /// Starts a server. Blocks for about a second.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, there is no user for the server to run as, or it does not start.
    pub fn start_with(binaries: &Binaries, settings: &ServerSettings) -> Result<Self, ServerError> {
        Shell::start(&Recipe {
            engine: &ENGINE,
            script: include_str!("server.sh"),
            arguments: &[binaries.folder().as_os_str()],
            settings: &|folder, address| settings.file(folder, address),
        })
        .map(Self)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The URL of its database `postgres`, over TCP, as a superuser.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.0.address)
    }

    /// The folder of its data and its logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Stops it, and returns when it and its folder are gone.
    pub fn stop(self) {
        self.0.stop();
    }
}
