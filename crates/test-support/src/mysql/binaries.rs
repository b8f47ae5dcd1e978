//! Where MariaDB's server binaries are.

use std::env;
use std::path::{Path, PathBuf};

use super::ENGINE;
use crate::ServerError;

/// The programs that make and run a MariaDB server.
#[derive(Clone, Debug)]
pub struct MariadbBinaries {
    install: PathBuf,
    server: PathBuf,
}

impl MariadbBinaries {
    /// Looks in `PATH`, then where Debian, Red Hat and Homebrew put them.
    ///
    /// # Errors
    ///
    /// None of these has them.
    pub fn find() -> Result<Self, ServerError> {
        let found = |name: &str| {
            let path = env::var_os("PATH").unwrap_or_default();
            let packages = [
                "/usr/bin",
                "/usr/sbin",
                "/usr/libexec",
                "/opt/homebrew/opt/mariadb/bin",
                "/usr/local/opt/mariadb/bin",
                "/home/linuxbrew/.linuxbrew/opt/mariadb/bin",
            ];
            env::split_paths(&path)
                .chain(packages.map(PathBuf::from))
                .map(|folder| folder.join(name))
                .find(|file| file.is_file())
        };
        found("mariadb-install-db")
            .zip(found("mariadbd"))
            .map(|(install, server)| Self { install, server })
            .ok_or_else(|| ServerError::no_binaries(&ENGINE))
    }

    /// The program that makes a server's data.
    #[must_use]
    pub fn install(&self) -> &Path {
        &self.install
    }

    /// The server itself.
    #[must_use]
    pub fn server(&self) -> &Path {
        &self.server
    }
}
