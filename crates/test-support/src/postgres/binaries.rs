//! Where PostgreSQL's server binaries are.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ENGINE;
use crate::ServerError;

/// The folder of one PostgreSQL installation's server binaries.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
    version: String,
}

impl Binaries {
    /// Looks in `PATH`, asks `pg_config`, then looks where Debian, Red Hat and Homebrew put them,
    /// the newest version first.
    ///
    /// # Errors
    ///
    /// None of these has them.
    pub fn find() -> Result<Self, ServerError> {
        from_path()
            .chain(from_pg_config())
            .chain(from_packages())
            .find_map(Self::in_folder)
            .ok_or_else(|| ServerError::no_binaries(&ENGINE))
    }

    /// Those in a folder.
    ///
    /// # Errors
    ///
    /// They are not there.
    pub fn at(folder: PathBuf) -> Result<Self, ServerError> {
        Self::in_folder(folder).ok_or_else(|| ServerError::no_binaries(&ENGINE))
    }

    fn in_folder(folder: PathBuf) -> Option<Self> {
        let complete = ["initdb", "postgres"]
            .iter()
            .all(|name| folder.join(name).is_file());
        let version = complete.then(|| output(folder.join("postgres"), "--version"))??;
        // What is in the PATH may be links to some of them.
        let real = fs::canonicalize(folder.join("postgres")).ok()?;
        let folder = real.parent().map_or(folder, Path::to_owned);
        Some(Self { folder, version })
    }

    /// The folder that holds them.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What `postgres --version` says.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn from_path() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).collect::<Vec<_>>().into_iter()
}

fn from_pg_config() -> impl Iterator<Item = PathBuf> {
    output(PathBuf::from("pg_config"), "--bindir")
        .map(PathBuf::from)
        .into_iter()
}

fn from_packages() -> impl Iterator<Item = PathBuf> {
    [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/opt/homebrew/opt", "postgresql"),
        ("/usr/local/opt", "postgresql"),
        ("/home/linuxbrew/.linuxbrew/opt", "postgresql"),
    ]
    .into_iter()
    .flat_map(|(parent, prefix)| versions(Path::new(parent), prefix))
}

/// The `bin` folders of the children with a name of this prefix, the highest number first.
fn versions(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(children) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut found: Vec<(u32, PathBuf)> = children
        .flatten()
        .filter_map(|child| {
            let name = child.file_name().into_string().ok()?;
            let version = name.strip_prefix(prefix)?.trim_start_matches('@');
            // Homebrew's plain `postgresql` is a link to one of the others, or an old one.
            let number = if version.is_empty() {
                0
            } else {
                version.parse().ok()?
            };
            Some((number, child.path().join("bin")))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, folder)| folder).collect()
}

fn output(program: PathBuf, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{PathBuf, versions};

    /// Versions are compared as numbers, and what is no version is passed over.
    #[test]
    fn the_newest_version_comes_first() {
        let parent = tempfile::tempdir().expect("a folder");
        for name in [
            "postgresql@9",
            "postgresql@17",
            "postgresql",
            "postgresql-x",
            "redis",
        ] {
            fs::create_dir(parent.path().join(name)).expect("a folder");
        }
        let names: Vec<_> = versions(parent.path(), "postgresql")
            .into_iter()
            .map(|bin| {
                bin.strip_prefix(parent.path())
                    .expect("a child")
                    .to_path_buf()
            })
            .collect();
        assert_eq!(
            names,
            ["postgresql@17/bin", "postgresql@9/bin", "postgresql/bin"].map(PathBuf::from)
        );
    }
}
