//! A server that ends with the process that started it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::daemon::free_address;
use crate::error::{Engine, ServerError};
use crate::folder::{FolderError, make_folder};

/// A server in a temporary folder, on a unix socket there and on a port of `127.0.0.1`.
///
/// A shell holds the other end of a pipe to this process. When the pipe closes, because it is
/// [stopped](Shell::stop) or dropped or the process is no more, the shell stops the server and
/// removes the folder.
#[derive(Debug)]
pub(crate) struct Shell {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) folder: PathBuf,
}

/// How a server is started.
pub(crate) struct Recipe<'a> {
    pub(crate) engine: &'static Engine,
    /// Says `ready` once it is, writes `install.log` and `server.log`, and reads its input until
    /// that ends. Its arguments are those below, and then the folder.
    pub(crate) script: &'a str,
    pub(crate) arguments: &'a [&'a OsStr],
    /// What is written to the file `settings` in the folder.
    pub(crate) settings: &'a dyn Fn(&Path, SocketAddr) -> String,
}

impl Shell {
    /// Starts a server. Blocks until it is ready.
    pub(crate) fn start(recipe: &Recipe<'_>) -> Result<Self, ServerError> {
        const ATTEMPTS: usize = 3;
        // Another process may take the free port before the server does.
        for _ in 1..ATTEMPTS {
            if let Ok(server) = Self::attempt(recipe) {
                return Ok(server);
            }
        }
        Self::attempt(recipe)
    }

    fn attempt(recipe: &Recipe<'_>) -> Result<Self, ServerError> {
        let io = |what| ServerError::io(recipe.engine, what);
        let Engine { word, users, .. } = recipe.engine;
        let (folder, user) = make_folder(word, users).map_err(|error| match error {
            FolderError::NoUser => ServerError::no_user(recipe.engine),
            FolderError::Io(what, error) => io(what)(error),
        })?;
        let address = free_address().map_err(io("find a free port"))?;
        fs::write(folder.join("settings"), (recipe.settings)(&folder, address))
            .map_err(io("write the server's settings"))?;

        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", recipe.script, "server"])
            .args(recipe.arguments)
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
        let mut child = command.spawn().map_err(io("run a shell for the server"))?;

        let stdout = child.stdout.take().expect("it is piped");
        let mut word = String::new();
        BufReader::new(stdout)
            .read_line(&mut word)
            .map_err(io("read from the server's shell"))?;
        let log = logs(&folder);
        let server = Self {
            child,
            address,
            folder,
        };
        if word.trim() == "ready" {
            Ok(server)
        } else {
            server.stop();
            Err(ServerError::not_started(recipe.engine, &log))
        }
    }

    /// Stops it, and returns when it and its folder are gone.
    pub(crate) fn stop(mut self) {
        drop(self.child.stdin.take());
        // Nothing can be done about a shell that cannot be waited for.
        self.child.wait().ok();
    }
}

fn logs(folder: &Path) -> String {
    ["install.log", "server.log"]
        .iter()
        .filter_map(|name| fs::read_to_string(folder.join(name)).ok())
        .collect()
}
