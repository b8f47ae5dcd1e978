//! Names of databases.

use std::env;
use std::hash::{BuildHasher as _, RandomState};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Begins the names of a run's databases; set by `cargo xtask test`, which drops what is left.
const PREFIX_VARIABLE: &str = "TEST_DATABASE_PREFIX";

/// A prefix for the databases of one run, unlike that of any other run.
#[must_use]
pub fn run_prefix() -> String {
    let random = RandomState::new().hash_one(process::id());
    format!("tower_idempotency_test_{random:016x}_")
}

/// A name that no other database has.
pub(crate) fn fresh_name() -> String {
    static PREFIX: OnceLock<String> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let prefix = PREFIX.get_or_init(|| env::var(PREFIX_VARIABLE).unwrap_or_else(|_| run_prefix()));
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}{}_{count}", process::id())
}
