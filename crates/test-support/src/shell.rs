//! A server that ends with the process that started it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

use crate::error::{Engine, ServerError};

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
        let (folder, user) = make_folder(recipe.engine)?;
        let address = free_address(recipe.engine)?;
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
fn make_folder(engine: &'static Engine) -> Result<(PathBuf, Option<User>), ServerError> {
    let prefix = format!("test-{}-{}-", engine.word, process::id());
    let io = |what| ServerError::io(engine, what);
    let make = |parent: &Path| {
        tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(parent)
            .map_err(io("make a folder for the server"))
    };
    let mut folder = make(&std::env::temp_dir())?;
    let is_root = fs::metadata(folder.path())
        .map_err(io("read the server's folder"))?
        .uid()
        == 0;
    // A socket's path holds 103 bytes on macOS; and another user must be able to remove the
    // folder, which /tmp lets him do.
    if is_root || folder.path().as_os_str().len() > 80 {
        folder = make(Path::new("/tmp"))?;
    }
    let user = if is_root {
        let user = engine
            .users
            .iter()
            .find_map(|name| User::named(name))
            .ok_or_else(|| ServerError::no_user(engine))?;
        chown(folder.path(), Some(user.uid), Some(user.gid))
            .map_err(io("give the folder to the server's user"))?;
        Some(user)
    } else {
        None
    };
    // From here on the shell removes it.
    Ok((folder.keep(), user))
}

fn free_address(engine: &'static Engine) -> Result<SocketAddr, ServerError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(ServerError::io(engine, "find a free port"))
}

fn logs(folder: &Path) -> String {
    ["install.log", "server.log"]
        .iter()
        .filter_map(|name| fs::read_to_string(folder.join(name)).ok())
        .collect()
}
