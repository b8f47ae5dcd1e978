//! What `cargo metadata` says.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use crate::{Outcome, command};

/// The workspace that we are a part of.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    packages: Vec<Package>,
}

/// A crate of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    features: BTreeMap<String, Vec<String>>,
    /// Absent means every registry, and an empty list none.
    publish: Option<Vec<String>>,
}

impl Workspace {
    pub(crate) fn read() -> Outcome<Self> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut metadata = Command::new(cargo);
        metadata
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .args([
                "--manifest-path",
                concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
            ]);
        Ok(serde_json::from_str(&command::output(&mut metadata)?)?)
    }

    /// The crates that users get.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| package.publish.as_ref().is_none_or(|to| !to.is_empty()))
    }
}

impl Package {
    /// Every feature but the one that stands for others.
    pub(crate) fn features(&self) -> impl Iterator<Item = &str> {
        self.features
            .keys()
            .map(String::as_str)
            .filter(|name| *name != "default")
    }
}
