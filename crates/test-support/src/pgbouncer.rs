//! PgBouncer in front of a PostgreSQL server.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::net::TcpStream;

use crate::daemon::{Daemon, DaemonError, free_address};

/// Names the program, where it is not in the `PATH`.
const PROGRAM: &str = "TEST_PGBOUNCER";

/// From this version on it keeps prepared statements in transaction mode.
const PREPARES: (u32, u32) = (1, 21);

/// PgBouncer in transaction mode, with pools of five connections.
#[derive(Debug)]
pub struct PgBouncer {
    daemon: Daemon,
    program: String,
    address: SocketAddr,
    version: (u32, u32),
}

impl PgBouncer {
    /// Starts it in front of a server's database `postgres`, for a user of that name. It is the
    /// program that `TEST_PGBOUNCER` names, else one in the `PATH` or where Debian puts it.
    ///
    /// # Errors
    ///
    /// There is none, or it does not start.
    pub async fn start(server: SocketAddr) -> Result<Self, DaemonError> {
        let daemon = Daemon::new("pgbouncer", &["postgres", "nobody"])?;
        let (program, version) = find().ok_or_else(|| {
            daemon.failed("not found: install the package pgbouncer, or name it in TEST_PGBOUNCER")
        })?;
        let address = free_address().map_err(|error| daemon.failed(error.to_string()))?;
        let prepares = if version >= PREPARES {
            "max_prepared_statements = 100\n"
        } else {
            ""
        };
        // A server that was down is asked again soon, and not after 15 seconds.
        let settings = format!(
            "[databases]\npostgres = host={} port={}\n\
             [pgbouncer]\nlisten_addr = {}\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = users\n\
             pool_mode = transaction\ndefault_pool_size = 5\nmax_client_conn = 500\n\
             ignore_startup_parameters = extra_float_digits\nserver_login_retry = 1\n{prepares}",
            server.ip(),
            server.port(),
            address.ip(),
            address.port(),
        );
        daemon.write("settings", &settings)?;
        daemon.write("users", "\"postgres\" \"\"\n")?;
        let mut pooler = Self {
            daemon,
            program: program.to_string_lossy().into_owned(),
            address,
            version,
        };
        pooler.restart().await?;
        Ok(pooler)
    }

    /// Starts it again after a crash.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub async fn restart(&mut self) -> Result<(), DaemonError> {
        self.daemon.start(&[&self.program, "settings"]).await?;
        let address = self.address;
        let listens = || async move { TcpStream::connect(address).await.is_ok() };
        self.daemon.until(listens).await
    }

    /// Kills it.
    ///
    /// # Errors
    ///
    /// Its keeper is gone.
    pub async fn crash(&mut self) -> Result<(), DaemonError> {
        self.daemon.crash().await
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its version, major and minor.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Whether it keeps prepared statements.
    #[must_use]
    pub fn prepares(&self) -> bool {
        self.version >= PREPARES
    }

    /// Stops it and removes its folder.
    pub async fn stop(self) {
        self.daemon.stop().await;
    }
}

fn find() -> Option<(PathBuf, (u32, u32))> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).collect::<Vec<_>>();
    let named = env::var_os(PROGRAM).map(PathBuf::from);
    named
        .into_iter()
        .chain(folders.into_iter().map(|folder| folder.join("pgbouncer")))
        .chain([PathBuf::from("/usr/sbin/pgbouncer")])
        .find_map(|program| version(&program).map(|version| (program, version)))
}

/// What `--version` says.
fn version(program: &Path) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut numbers = text.lines().next()?.strip_prefix("PgBouncer ")?.split('.');
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}
