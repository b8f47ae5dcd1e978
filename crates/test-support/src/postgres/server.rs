//! A server of our own, which ends with the process that started it.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

use super::{Binaries, ServerError};

/// A PostgreSQL server in a temporary folder, on a unix socket there and on a port of
/// `127.0.0.1`. Any user of this machine may connect while it runs.
///
/// A shell holds the other end of a pipe to this process. When the pipe closes, by
/// [`stop`](PostgresServer::stop), by drop or because the process is no more, the shell stops the
/// server and removes the folder.
#[derive(Debug)]
pub struct PostgresServer {
    shell: Child,
    address: SocketAddr,
    folder: PathBuf,
}

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

    fn file(&self, folder: &Path, address: SocketAddr) -> String {
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
        const ATTEMPTS: usize = 3;
        // Another process may take the free port before the server does.
        for _ in 1..ATTEMPTS {
            if let Ok(server) = Self::attempt(binaries, settings) {
                return Ok(server);
            }
        }
        Self::attempt(binaries, settings)
    }

    fn attempt(binaries: &Binaries, settings: &ServerSettings) -> Result<Self, ServerError> {
        let (folder, user) = make_folder()?;
        let address = free_address()?;
        fs::write(folder.join("settings"), settings.file(&folder, address))
            .map_err(ServerError::io("write the server's settings"))?;

        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", include_str!("server.sh"), "server"])
            .args([binaries.folder(), &folder])
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
        let mut shell = command
            .spawn()
            .map_err(ServerError::io("run a shell for the server"))?;

        let stdout = shell.stdout.take().expect("it is piped");
        let mut word = String::new();
        BufReader::new(stdout)
            .read_line(&mut word)
            .map_err(ServerError::io("read from the server's shell"))?;
        let log = logs(&folder);
        let server = Self {
            shell,
            address,
            folder,
        };
        if word.trim() == "ready" {
            Ok(server)
        } else {
            server.stop();
            Err(ServerError::not_started(&log))
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its database `postgres`, over TCP, as a superuser.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address)
    }

    /// The folder of its data and its logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stops it, and returns when it and its folder are gone.
    pub fn stop(mut self) {
        drop(self.shell.stdin.take());
        // Nothing can be done about a shell that cannot be waited for.
        self.shell.wait().ok();
    }
}

/// The user that a server runs as when we are root.
struct User {
    uid: u32,
    gid: u32,
}

impl User {
    fn named(name: &str) -> Option<Self> {
        let id = |flag| {
            let output = Command::new("id").args([flag, name]).output().ok()?;
            String::from_utf8(output.stdout).ok()?.trim().parse().ok()
        };
        Some(Self {
            uid: id("-u")?,
            gid: id("-g")?,
        })
    }
}

/// Makes the server's folder, owned by the user that the server has to run as if that is not us.
fn make_folder() -> Result<(PathBuf, Option<User>), ServerError> {
    let prefix = format!("test-postgres-{}-", process::id());
    let make = |parent: &Path| {
        tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(parent)
            .map_err(ServerError::io("make a folder for the server"))
    };
    let mut folder = make(&std::env::temp_dir())?;
    let is_root = fs::metadata(folder.path())
        .map_err(ServerError::io("read the server's folder"))?
        .uid()
        == 0;
    // A socket's path holds 103 bytes on macOS; and another user must be able to remove the
    // folder, which /tmp lets him do.
    if is_root || folder.path().as_os_str().len() > 80 {
        folder = make(Path::new("/tmp"))?;
    }
    let user = if is_root {
        let user = User::named("postgres")
            .or_else(|| User::named("nobody"))
            .ok_or_else(ServerError::no_user)?;
        chown(folder.path(), Some(user.uid), Some(user.gid))
            .map_err(ServerError::io("give the folder to the server's user"))?;
        Some(user)
    } else {
        None
    };
    // From here on the shell removes it.
    Ok((folder.keep(), user))
}

fn free_address() -> Result<SocketAddr, ServerError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(ServerError::io("find a free port"))
}

fn logs(folder: &Path) -> String {
    ["initdb.log", "server.log"]
        .iter()
        .filter_map(|name| fs::read_to_string(folder.join(name)).ok())
        .collect()
}
