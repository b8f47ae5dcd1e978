//! A MariaDB server that crashes and comes back, alone or in a cluster by Galera.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _};
use tokio::time::{Instant, sleep, timeout};

use super::MariadbBinaries;
use crate::daemon::{Daemon, DaemonError, free_address};

/// A server in a folder of its own, that ends with this process.
#[derive(Debug)]
pub struct MariadbNode {
    daemon: Daemon,
    server: String,
    address: SocketAddr,
    clustered: bool,
}

/// What a member says of its cluster and of itself.
#[derive(Debug, PartialEq, Eq)]
struct State {
    cluster: String,
    size: String,
    member: String,
}

const NAME: &str = "mariadb";

const NO_GALERA: &str = "no Galera: install the packages galera-4, mariadb-server, rsync and lsof \
     (Debian, Ubuntu: apt-get install galera-4 mariadb-server rsync lsof)";

/// Where Debian and Red Hat put Galera.
const PROVIDERS: [&str; 2] = [
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
];

/// How long a member may take to see that it is cut off, or to come back.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often a member is started where it gives up: who was to send it the data may be gone.
const ATTEMPTS: usize = 3;

impl MariadbNode {
    /// Starts a server by itself.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub async fn alone(binaries: &MariadbBinaries) -> Result<Self, DaemonError> {
        let mut node = Self::new(binaries, "").await?;
        node.start(&[]).await?;
        Ok(node)
    }

    /// Starts three servers that are one cluster, each of which takes writes.
    ///
    /// # Errors
    ///
    /// They do not start, or Galera is not installed.
    pub async fn cluster(binaries: &MariadbBinaries) -> Result<Vec<Self>, DaemonError> {
        let members = [address()?, address()?, address()?];
        let mut nodes: Vec<Self> = Vec::new();
        for member in members {
            let mut node = Self::new(binaries, &galera(member, members)?).await?;
            node.clustered = true;
            let first = nodes.is_empty();
            let arguments: &[&str] = if first { &["--wsrep-new-cluster"] } else { &[] };
            node.start(arguments).await?;
            nodes.push(node);
        }
        Ok(nodes)
    }

    async fn new(binaries: &MariadbBinaries, more: &str) -> Result<Self, DaemonError> {
        let mut daemon = Daemon::new(NAME, super::ENGINE.users)?;
        let folder = daemon.folder().display().to_string();
        let address = address()?;
        let (ip, port) = (address.ip(), address.port());
        let settings = format!(
            "[mariadbd]\n\
             datadir = {folder}/data\nsocket = {folder}/socket\npid_file = {folder}/pid\n\
             bind_address = {ip}\nport = {port}\nskip_name_resolve\nmax_connections = 300\n\
             innodb_flush_log_at_trx_commit = 2\ninnodb_buffer_pool_size = 64M\n\
             innodb_log_file_size = 64M\n{more}"
        );
        daemon.write("settings", &settings)?;
        let install = binaries.install().to_string_lossy();
        let datadir = format!("--datadir={folder}/data");
        let words = [
            &*install,
            "--no-defaults",
            &datadir,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        ];
        daemon.run(&words).await?;
        Ok(Self {
            daemon,
            server: binaries.server().to_string_lossy().into_owned(),
            address,
            clustered: false,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a database of its, as its administrator.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@{}/{database}", self.address)
    }

    /// Kills it as when its machine loses power.
    ///
    /// # Errors
    ///
    /// Its keeper is gone.
    pub async fn crash(&mut self) -> Result<(), DaemonError> {
        self.daemon.crash().await
    }

    /// Starts it again after a crash, and returns when it is in step with its cluster, if it is in
    /// one. A member that gives up is started again, as its supervisor does.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub async fn restart(&mut self) -> Result<(), DaemonError> {
        let attempts = if self.clustered { ATTEMPTS } else { 1 };
        for _ in 1..attempts {
            match self.start(&[]).await {
                Ok(()) => return Ok(()),
                Err(error) => eprintln!("{error}: starting it again"),
            }
            self.daemon.crash().await?;
        }
        self.start(&[]).await
    }

    async fn start(&mut self, arguments: &[&str]) -> Result<(), DaemonError> {
        let words = [&*self.server, "--defaults-file=settings"];
        self.daemon.start(&[&words[..], arguments].concat()).await?;
        let (address, clustered) = (self.address, self.clustered);
        let ready = || async move {
            state(address)
                .await
                .is_some_and(|state| !clustered || state.is_in_step())
        };
        let started = self.daemon.until(ready).await;
        // Its last word is only that it ends.
        started.map_err(|_| self.daemon.failed(last_errors(self.daemon.folder())))
    }

    /// Cuts it off from the others, and returns when it sees that: it is a minority of one.
    ///
    /// # Errors
    ///
    /// It does not see it in time.
    pub async fn cut_off(&self) -> Result<(), DaemonError> {
        self.isolate(1).await?;
        self.until("the node does not see that it is cut off", |state| {
            state.cluster != "Primary"
        })
        .await
    }

    /// Ends [`cut_off`](Self::cut_off), and returns when it is in step with the others.
    ///
    /// # Errors
    ///
    /// It is not in time.
    pub async fn rejoin(&self) -> Result<(), DaemonError> {
        self.isolate(0).await?;
        let why = "the node does not come back into its cluster";
        self.until(why, State::is_in_step).await
    }

    /// Waits until it has seen that one of three members is gone. Where that one is back before, with
    /// another identity at the same address, they agree on nothing, and all of them stop.
    ///
    /// # Errors
    ///
    /// It does not see it in time.
    pub async fn misses_one(&self) -> Result<(), DaemonError> {
        let why = "the node does not see that another is gone";
        self.until(why, |state| state.size == "2" && state.is_in_step())
            .await
    }

    async fn isolate(&self, value: u8) -> Result<(), DaemonError> {
        let sql = format!("SET GLOBAL wsrep_provider_options = 'gmcast.isolate={value}'");
        let done = self.run(sql).await;
        done.map_err(|error| self.daemon.failed(error.to_string()))
    }

    async fn until(
        &self,
        why: &str,
        wanted: impl Fn(&State) -> bool + Sync,
    ) -> Result<(), DaemonError> {
        let deadline = Instant::now() + PATIENCE;
        while !state(self.address)
            .await
            .is_some_and(|state| wanted(&state))
        {
            if Instant::now() >= deadline {
                return Err(self.daemon.failed(why));
            }
            // No event tells of it.
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Runs statements on it.
    ///
    /// # Errors
    ///
    /// It cannot be reached, or one fails.
    pub async fn run(&self, sql: String) -> sqlx::Result<()> {
        let mut conn = MySqlConnection::connect(&self.url("")).await?;
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
        conn.close().await
    }

    /// Stops it and removes its folder.
    pub async fn stop(self) {
        self.daemon.stop().await;
    }
}

impl State {
    fn is_in_step(&self) -> bool {
        self.cluster == "Primary" && self.member == "Synced"
    }
}

/// What it says of itself, if it answers.
async fn state(address: SocketAddr) -> Option<State> {
    let asked = timeout(Duration::from_secs(2), ask_state(address)).await;
    asked.ok()?.ok()
}

async fn ask_state(address: SocketAddr) -> sqlx::Result<State> {
    let mut conn = MySqlConnection::connect(&format!("mysql://root@{address}/")).await?;
    // A member that is cut off answers nothing else.
    let state = State {
        cluster: status(&mut conn, "SHOW STATUS LIKE 'wsrep_cluster_status'").await?,
        size: status(&mut conn, "SHOW STATUS LIKE 'wsrep_cluster_size'").await?,
        member: status(&mut conn, "SHOW STATUS LIKE 'wsrep_local_state_comment'").await?,
    };
    conn.close().await?;
    Ok(state)
}

async fn status(conn: &mut MySqlConnection, sql: &'static str) -> sqlx::Result<String> {
    match sqlx::raw_sql(sql).fetch_optional(conn).await? {
        Some(row) => row.try_get_unchecked(1),
        None => Ok(String::new()),
    }
}

fn address() -> Result<SocketAddr, DaemonError> {
    free_address().map_err(|error| DaemonError::new(NAME, error.to_string()))
}

/// The settings of one of these members. Each statement waits for what the others had committed
/// before it.
fn galera(member: SocketAddr, members: [SocketAddr; 3]) -> Result<String, DaemonError> {
    let provider = PROVIDERS
        .into_iter()
        .find(|place| Path::new(place).exists());
    let provider = provider.ok_or_else(|| DaemonError::new(NAME, NO_GALERA))?;
    let (ip, port) = (member.ip(), member.port());
    let (transfer, increments) = (address()?, address()?);
    let members = members.map(|member| member.to_string()).join(",");
    Ok(format!(
        "wsrep_on = ON\nwsrep_provider = {provider}\nwsrep_cluster_name = test\n\
         wsrep_cluster_address = gcomm://{members}\nwsrep_node_address = {ip}:{port}\n\
         wsrep_sst_method = rsync\nwsrep_sst_receive_address = {transfer}\nwsrep_sync_wait = 7\n\
         binlog_format = ROW\ninnodb_autoinc_lock_mode = 2\n\
         wsrep_provider_options = \"base_port={port};gmcast.listen_addr=tcp://{member};\
         ist.recv_addr={increments};pc.recovery=false;evs.suspect_timeout=PT3S;\
         evs.inactive_timeout=PT8S\"\n"
    ))
}

/// The last errors of a server's log.
fn last_errors(folder: &Path) -> String {
    let log = fs::read(folder.join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let errors = log.lines().rev().filter(|line| line.contains("[ERROR]"));
    let mut errors: Vec<_> = errors.take(4).collect();
    errors.reverse();
    errors.join("; ")
}
