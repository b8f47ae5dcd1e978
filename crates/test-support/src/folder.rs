//! The folder of a server, and the user that it runs as.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{self, Command};

/// A user that is not us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
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

/// Why there is no folder.
#[derive(Debug)]
pub(crate) enum FolderError {
    /// We are root, which servers refuse to run as, and there is no other user.
    NoUser,
    Io(&'static str, io::Error),
}

/// Makes a server's folder, owned by the user that the server has to run as if that is not us: the
/// first of these that there is. Whoever runs in it has to remove it.
pub(crate) fn make_folder(
    kind: &str,
    users: &[&str],
) -> Result<(PathBuf, Option<User>), FolderError> {
    let prefix = format!("test-{kind}-{}-", process::id());
    let make = |parent: &Path| {
        tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(parent)
            .map_err(|error| FolderError::Io("make a folder for the server", error))
    };
    let mut folder = make(&std::env::temp_dir())?;
    let is_root = fs::metadata(folder.path())
        .map_err(|error| FolderError::Io("read the server's folder", error))?
        .uid()
        == 0;
    // A socket's path holds 103 bytes on macOS; and another user must be able to remove the
    // folder, which /tmp lets him do.
    if is_root || folder.path().as_os_str().len() > 80 {
        folder = make(Path::new("/tmp"))?;
    }
    let user = if is_root {
        let user = users.iter().find_map(|name| User::named(name));
        let user = user.ok_or(FolderError::NoUser)?;
        chown(folder.path(), Some(user.uid), Some(user.gid))
            .map_err(|error| FolderError::Io("give the folder to the server's user", error))?;
        Some(user)
    } else {
        None
    };
    Ok((folder.keep(), user))
}
