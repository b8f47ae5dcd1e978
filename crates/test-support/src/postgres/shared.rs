//! The one server that all tests of a process share, or all processes of a run.

use std::env;
use std::hash::{BuildHasher as _, RandomState};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use url::Url;

use super::PostgresServer;

/// Names the server to use; set by `cargo xtask test` for one server per run.
const URL_VARIABLE: &str = "TEST_POSTGRES_URL";
/// Begins the names of a run's databases; set by `cargo xtask test`, which drops what is left.
const PREFIX_VARIABLE: &str = "TEST_POSTGRES_PREFIX";

/// The URL of the shared server, as one who may create databases. Blocks while it starts.
pub(super) fn server_url() -> &'static Url {
    static URL: OnceLock<Url> = OnceLock::new();
    URL.get_or_init(|| match env::var(URL_VARIABLE) {
        Ok(url) => parse(&url),
        Err(_) => parse(&own_server().url()),
    })
}

/// Lives as long as the process; the pipe to its shell closes with it.
fn own_server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(|| PostgresServer::start().unwrap_or_else(|error| panic!("{error}")))
}

fn parse(url: &str) -> Url {
    let parsed = Url::parse(url)
        .unwrap_or_else(|error| panic!("{URL_VARIABLE} is not a URL ({error}): write postgres://user:password@host:port/database"));
    let by_socket = parsed
        .query_pairs()
        .any(|(name, _)| name == "host" || name == "hostaddr" || name == "socket");
    assert!(
        parsed.host_str().is_some_and(|host| !host.is_empty()) && !by_socket,
        "{URL_VARIABLE} names no TCP host, which tests with a proxy need: write postgres://user:password@host:port/database"
    );
    parsed
}

/// A prefix for the databases of one run, unlike that of any other run.
#[must_use]
pub fn run_prefix() -> String {
    let random = RandomState::new().hash_one(process::id());
    format!("tower_idempotency_test_{random:016x}_")
}

/// A name that no other database of the server has.
pub(super) fn fresh_name() -> String {
    static PREFIX: OnceLock<String> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let prefix = PREFIX.get_or_init(|| env::var(PREFIX_VARIABLE).unwrap_or_else(|_| run_prefix()));
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}{}_{count}", process::id())
}
