//! Programs of other people's, installed where that can be done.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::{Outcome, command};

/// A program, and the Debian package that brings it.
pub(crate) struct Program {
    /// Where it is: a path, or a name to be found in the `PATH` or where Debian puts servers.
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
}

impl Program {
    fn is_there(&self) -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        Path::new(self.name).exists()
            || env::split_paths(&path)
                .chain([Path::new("/usr/sbin").to_owned()])
                .any(|folder| folder.join(self.name).is_file())
    }
}

/// Sees to it that all of them are there.
pub(crate) fn ensure(programs: &[Program]) -> Outcome {
    let missing: Vec<&str> = programs
        .iter()
        .filter(|program| !program.is_there())
        .map(|program| program.package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let words = missing.join(" ");
    let advice = format!("missing: install it (Debian, Ubuntu: apt-get install {words})");
    if !command::succeeds(Command::new("apt-get").arg("--version")) {
        return Err(advice.into());
    }
    apt(&missing, &advice)
}

/// Installs Debian packages, as root or with sudo.
pub(crate) fn apt(packages: &[&str], advice: &str) -> Outcome {
    let as_root = if command::output(Command::new("id").arg("-u"))?.trim() == "0" {
        &[][..]
    } else if command::succeeds(Command::new("sudo").args(["-n", "true"])) {
        &["sudo", "-n"][..]
    } else {
        return Err(advice.into());
    };
    println!("installing {} with apt-get", packages.join(", "));
    let apt_get = |arguments: &[&str]| {
        let words = [
            as_root,
            &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"],
            arguments,
        ]
        .concat();
        command::run_quietly(Command::new(words[0]).args(&words[1..]))
    };
    // A list that is partly out of reach may still have the package.
    if let Err(error) = apt_get(&["update", "-q"]) {
        eprintln!("{error}; going on");
    }
    let install = ["install", "-y", "-q", "--no-install-recommends"];
    apt_get(&[&install[..], packages].concat())
}
