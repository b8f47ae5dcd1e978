//! MariaDB servers of our own: one, or three that are one cluster by Galera.

use std::net::SocketAddr;
use std::time::Duration;

use fastrand::Rng;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};
use test_support::{Daemon, MariadbBinaries, Proxy, free_address};
use tokio::time::{Instant, sleep, timeout};

use crate::Outcome;
use crate::faults::Fault;

/// The servers, and before each a proxy that leads elsewhere while it is down: what a balancer with
/// health checks is in production.
pub(crate) struct Mariadb {
    nodes: Vec<Node>,
    fronts: Vec<Proxy>,
    dice: Rng,
}

struct Node {
    daemon: Daemon,
    server: String,
    address: SocketAddr,
    clustered: bool,
}

/// The database on them.
const DATABASE: &str = "torture";

/// How long a member is cut off: for longer than the others wait for it.
const ISOLATION: Duration = Duration::from_secs(6);

/// How long a server may take to come back into its cluster.
const PATIENCE: Duration = Duration::from_secs(90);

impl Mariadb {
    /// One server.
    pub(crate) async fn alone() -> Outcome<Self> {
        let binaries = MariadbBinaries::find()?;
        let mut node = Node::new(&binaries, free_address()?, "").await?;
        node.start(&[]).await?;
        Self::with(vec![node]).await
    }

    /// Three servers, each of which takes writes.
    pub(crate) async fn cluster() -> Outcome<Self> {
        let binaries = MariadbBinaries::find()?;
        let mut members = Vec::new();
        for _ in 0..3 {
            members.push(free_address()?);
        }
        let all: Vec<String> = members.iter().map(ToString::to_string).collect();
        let all = all.join(",");
        let mut nodes: Vec<Node> = Vec::new();
        for member in &members {
            let settings = galera(*member, &all)?;
            let mut node = Node::new(&binaries, free_address()?, &settings).await?;
            let first = nodes.is_empty();
            let arguments: &[&str] = if first { &["--wsrep-new-cluster"] } else { &[] };
            node.start(arguments).await?;
            nodes.push(node);
        }
        Self::with(nodes).await
    }

    async fn with(nodes: Vec<Node>) -> Outcome<Self> {
        let mut fronts = Vec::new();
        for node in &nodes {
            fronts.push(Proxy::start(node.address).await);
        }
        let sql = AssertSqlSafe(format!("CREATE DATABASE {DATABASE}"));
        nodes[0].run(sql).await?;
        let dice = Rng::new();
        Ok(Self {
            nodes,
            fronts,
            dice,
        })
    }

    /// Where the servers with that number reach it.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.fronts.iter().map(Proxy::address).collect()
    }

    pub(crate) fn url(&self) -> String {
        format!("mysql://root@{}/{DATABASE}", self.fronts[0].address())
    }

    /// What only happens to servers of this kind.
    pub(crate) fn disasters(nodes: usize) -> Vec<Fault> {
        if nodes == 1 {
            vec![Fault::Restart]
        } else {
            vec![Fault::KillNode, Fault::Isolate]
        }
    }

    pub(crate) async fn suffer(&mut self, disaster: Fault) -> Outcome {
        let victim = self.dice.usize(..self.nodes.len());
        if disaster == Fault::Isolate {
            return self.nodes[victim].isolate().await;
        }
        let next = (victim + 1) % self.nodes.len();
        self.nodes[victim].daemon.crash().await?;
        self.fronts[victim].redirect(self.nodes[next].address);
        self.nodes[victim].start(&[]).await?;
        self.fronts[victim].redirect(self.nodes[victim].address);
        self.fronts[victim].reset_all();
        Ok(())
    }

    /// How many connections are inside of a transaction and do nothing.
    pub(crate) async fn idle_in_transaction(&self) -> Outcome<i64> {
        let sql = "SELECT count(*) FROM information_schema.innodb_trx AS t \
             JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id \
             WHERE p.command = 'Sleep'";
        let mut sum = 0;
        for node in &self.nodes {
            let mut conn = node.connect().await?;
            let count: i64 = sqlx::query_scalar(sql).fetch_one(&mut conn).await?;
            sum += count;
        }
        Ok(sum)
    }

    pub(crate) async fn stop(self) {
        for node in self.nodes {
            node.daemon.stop().await;
        }
    }
}

impl Node {
    async fn new(binaries: &MariadbBinaries, address: SocketAddr, more: &str) -> Outcome<Self> {
        let mut daemon = Daemon::new("mariadb", &["mysql", "nobody"])?;
        let folder = daemon.folder().display().to_string();
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
            clustered: !more.is_empty(),
        })
    }

    /// Starts it, and returns when it is in step with its cluster, if it is in one.
    async fn start(&mut self, arguments: &[&str]) -> Outcome {
        let words = [&*self.server, "--defaults-file=settings"];
        self.daemon.start(&[&words[..], arguments].concat()).await?;
        let (address, clustered) = (self.address, self.clustered);
        let ready = || is_in_step(address, clustered);
        Ok(self.daemon.until(ready).await?)
    }

    /// Cuts it off from the others for a while: it is a minority of one, and takes nothing.
    async fn isolate(&self) -> Outcome {
        let set = |value| {
            let option = format!("SET GLOBAL wsrep_provider_options = 'gmcast.isolate={value}'");
            self.run(AssertSqlSafe(option))
        };
        set(1).await?;
        sleep(ISOLATION).await;
        set(0).await?;
        let deadline = Instant::now() + PATIENCE;
        while !is_in_step(self.address, true).await {
            if Instant::now() >= deadline {
                return Err("the node does not come back into its cluster".into());
            }
            // No event tells of it.
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn run(&self, sql: AssertSqlSafe<String>) -> Outcome {
        let mut conn = self.connect().await?;
        sqlx::raw_sql(sql).execute(&mut conn).await?;
        Ok(conn.close().await?)
    }

    async fn connect(&self) -> sqlx::Result<MySqlConnection> {
        MySqlConnection::connect(&format!("mysql://root@{}/", self.address)).await
    }
}

/// Whether it takes statements, and is in step with its cluster, if it is in one.
async fn is_in_step(address: SocketAddr, clustered: bool) -> bool {
    let states = timeout(Duration::from_secs(2), states(address)).await;
    match states {
        Ok(Ok(states)) => !clustered || states == [&b"Primary"[..], b"Synced"],
        Ok(Err(_)) | Err(_) => false,
    }
}

/// What it says of its cluster and of itself.
async fn states(address: SocketAddr) -> sqlx::Result<Vec<Vec<u8>>> {
    let mut conn = MySqlConnection::connect(&format!("mysql://root@{address}/")).await?;
    let sql = "SELECT CAST(variable_value AS BINARY) FROM information_schema.global_status \
         WHERE variable_name IN ('wsrep_cluster_status', 'wsrep_local_state_comment') \
         ORDER BY variable_name";
    let states = sqlx::query_scalar(sql).fetch_all(&mut conn).await?;
    conn.close().await?;
    Ok(states)
}

/// The settings of a member. Each statement waits for what the others had committed before it.
fn galera(member: SocketAddr, all: &str) -> Outcome<String> {
    let (ip, port) = (member.ip(), member.port());
    let (transfer, increments) = (free_address()?, free_address()?);
    let provider = provider().ok_or("no Galera: install the package galera-4")?;
    Ok(format!(
        "wsrep_on = ON\nwsrep_provider = {provider}\nwsrep_cluster_name = torture\n\
         wsrep_cluster_address = gcomm://{all}\nwsrep_node_address = {ip}:{port}\n\
         wsrep_sst_method = rsync\nwsrep_sst_receive_address = {transfer}\nwsrep_sync_wait = 7\n\
         binlog_format = ROW\ninnodb_autoinc_lock_mode = 2\n\
         wsrep_provider_options = \"base_port={port};gmcast.listen_addr=tcp://{member};\
         ist.recv_addr={increments};pc.recovery=false;evs.suspect_timeout=PT3S;\
         evs.inactive_timeout=PT8S\"\n"
    ))
}

/// Where Debian and Red Hat put the library.
fn provider() -> Option<&'static str> {
    let places = [
        "/usr/lib/galera/libgalera_smm.so",
        "/usr/lib64/galera-4/libgalera_smm.so",
    ];
    let is_there = |place: &&str| std::path::Path::new(place).exists();
    places.into_iter().find(is_there)
}
