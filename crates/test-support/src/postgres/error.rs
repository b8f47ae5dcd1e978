//! Why no server is to be had.

use std::error::Error;
use std::fmt;
use std::io;

/// Why no PostgreSQL server is to be had. Displays what to do about it, in one line.
#[derive(Debug)]
pub struct ServerError(Kind);

#[derive(Debug)]
enum Kind {
    NoBinaries,
    NoUser,
    Io(&'static str, io::Error),
    NotStarted(String),
}

impl ServerError {
    pub(crate) fn no_binaries() -> Self {
        Self(Kind::NoBinaries)
    }

    pub(crate) fn no_user() -> Self {
        Self(Kind::NoUser)
    }

    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self(Kind::Io(what, error))
    }

    pub(crate) fn not_started(log: &str) -> Self {
        Self(Kind::NotStarted(last_line(log).to_owned()))
    }

    /// Whether the machine has no server binaries that could be found.
    #[must_use]
    pub fn is_no_binaries(&self) -> bool {
        matches!(self.0, Kind::NoBinaries)
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
        match &self.0 {
            Kind::NoBinaries => f.write_str(
                "no PostgreSQL server binaries found: run `cargo xtask test`, which installs them where it can, or install PostgreSQL 13 or later, or set TEST_POSTGRES_URL to a server on which databases may be created",
            ),
            Kind::NoUser => f.write_str(
                "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody`: run the tests as another user, or set TEST_POSTGRES_URL",
            ),
            Kind::Io(what, error) => write!(f, "could not {what}: {error}"),
            Kind::NotStarted(line) => write!(
                f,
                "PostgreSQL did not start ({line}): mend that, or set TEST_POSTGRES_URL"
            ),
        }
    }
}

// The message has the cause in it: one line is all that a failed test shows.
impl Error for ServerError {}
