//! Why no server is to be had.

use std::error::Error;
use std::fmt;
use std::io;

/// Why no server is to be had. Displays what to do about it, in one line.
#[derive(Debug)]
pub struct ServerError(&'static Engine, Kind);

/// What messages call a kind of server.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    /// With its oldest version.
    pub(crate) wanted: &'static str,
    /// Part of a folder's name.
    pub(crate) word: &'static str,
    /// The environment variable that names one of the user's.
    pub(crate) variable: &'static str,
    /// Who runs it when we are root: the first of these that there is.
    pub(crate) users: &'static [&'static str],
}

#[derive(Debug)]
enum Kind {
    NoBinaries,
    NoUser,
    Io(&'static str, io::Error),
    NotStarted(String),
}

impl ServerError {
    pub(crate) fn no_binaries(engine: &'static Engine) -> Self {
        Self(engine, Kind::NoBinaries)
    }

    pub(crate) fn no_user(engine: &'static Engine) -> Self {
        Self(engine, Kind::NoUser)
    }

    pub(crate) fn io(
        engine: &'static Engine,
        what: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        move |error| Self(engine, Kind::Io(what, error))
    }

    pub(crate) fn not_started(engine: &'static Engine, log: &str) -> Self {
        Self(engine, Kind::NotStarted(last_line(log).to_owned()))
    }

    /// Whether the machine has no server binaries that could be found.
    #[must_use]
    pub fn is_no_binaries(&self) -> bool {
        matches!(self.1, Kind::NoBinaries)
    }
}

/// The last line that says anything.
fn last_line(log: &str) -> &str {
    log.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .unwrap_or("its log is empty")
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(engine, kind) = self;
        let Engine {
            name,
            wanted,
            variable,
            users,
            ..
        } = engine;
        match kind {
            Kind::NoBinaries => write!(
                f,
                "no {name} server binaries found: run `cargo xtask test`, which installs them where it can, or install {wanted} or later, or set {variable} to a server on which databases may be created"
            ),
            Kind::NoUser => write!(
                f,
                "{name} refuses to run as root, and there is no user `{}`: run the tests as another user, or set {variable}",
                users.join("` or `")
            ),
            Kind::Io(what, error) => write!(f, "could not {what}: {error}"),
            Kind::NotStarted(line) => write!(
                f,
                "{name} did not start ({line}): mend that, or set {variable}"
            ),
        }
    }
}

// The message has the cause in it: one line is all that a failed test shows.
impl Error for ServerError {}
