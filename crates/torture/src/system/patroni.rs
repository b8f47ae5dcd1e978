//! PostgreSQL under Patroni, which promotes a standby by itself, with etcd as its memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use test_support::{Binaries, Daemon, Proxy, free_address};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::Outcome;

/// Two servers in synchronous mode, and a proxy that leads to the leader: what HAProxy with health
/// checks is in production.
pub(crate) struct Patroni {
    etcd: Daemon,
    nodes: [Node; 2],
    front: Arc<Proxy>,
    follower: JoinHandle<()>,
}

struct Node {
    daemon: Daemon,
    health: Health,
}

/// A server, and where its state may be asked for.
#[derive(Clone)]
struct Health {
    http: reqwest::Client,
    api: SocketAddr,
    postgres: SocketAddr,
}

/// How long a leader or a standby may take to come up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who runs servers when we are root.
const USERS: &[&str] = &["postgres", "nobody"];

impl Patroni {
    pub(crate) async fn start(binaries: &Binaries) -> Outcome<Self> {
        let (client, peer) = (free_address()?, free_address()?);
        let mut etcd = Daemon::new("etcd", USERS)?;
        let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
        let cluster = format!("default={peer_url}");
        let words = [
            "etcd",
            "--data-dir=etcd",
            "--listen-client-urls",
            &client_url,
            "--advertise-client-urls",
            &client_url,
            "--listen-peer-urls",
            &peer_url,
            "--initial-advertise-peer-urls",
            &peer_url,
            "--initial-cluster",
            &cluster,
        ];
        etcd.start(&words).await?;
        let listens = || async move { tokio::net::TcpStream::connect(client).await.is_ok() };
        etcd.until(listens).await?;

        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(1))
            .build()?;
        let mut nodes = Vec::new();
        for number in 0..2 {
            let health = Health {
                http: http.clone(),
                api: free_address()?,
                postgres: free_address()?,
            };
            let daemon = Daemon::new("patroni", USERS)?;
            let settings = settings(number, &daemon, binaries, client, &health);
            daemon.write("settings.yml", &settings)?;
            nodes.push(Node { daemon, health });
        }
        let Ok(mut nodes) = <[Node; 2]>::try_from(nodes) else {
            return Err("two nodes are two".into());
        };
        for node in &mut nodes {
            node.start().await?;
        }
        let states = [&nodes[0], &nodes[1]].map(|node| node.health.clone());
        let leader = leader(&states).await?;
        until_synchronous(&states[leader], &states[1 - leader]).await?;
        let front = Arc::new(Proxy::start(states[leader].postgres).await);
        let follower = tokio::spawn(follow(Arc::clone(&front), states, leader));
        Ok(Self {
            etcd,
            nodes,
            front,
            follower,
        })
    }

    /// Where the leader is, whichever server that is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.front.address()
    }

    /// Kills the leader with its Patroni, waits for another, and starts the old one again.
    pub(crate) async fn kill_leader(&mut self) -> Outcome {
        let states = self.states();
        let victim = leader(&states).await?;
        self.nodes[victim].daemon.crash().await?;
        let deadline = Instant::now() + PATIENCE;
        while !states[1 - victim].is("primary").await {
            if Instant::now() >= deadline {
                return Err("no standby became the leader".into());
            }
            sleep(Duration::from_millis(50)).await;
        }
        self.nodes[victim].start().await?;
        until_synchronous(&states[1 - victim], &states[victim]).await
    }

    fn states(&self) -> [Health; 2] {
        [&self.nodes[0], &self.nodes[1]].map(|node| node.health.clone())
    }

    pub(crate) async fn stop(self) {
        self.follower.abort();
        for node in self.nodes {
            node.daemon.stop().await;
        }
        self.etcd.stop().await;
    }
}

impl Node {
    async fn start(&mut self) -> Outcome {
        Ok(self.daemon.start(&["patroni", "settings.yml"]).await?)
    }
}

impl Health {
    /// Whether it says to be `primary` or `sync`.
    async fn is(&self, role: &str) -> bool {
        let url = format!("http://{}/{role}", self.api);
        let answer = self.http.get(url).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }
}

/// Which of them is the leader.
async fn leader(states: &[Health; 2]) -> Outcome<usize> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for (number, state) in states.iter().enumerate() {
            if state.is("primary").await {
                return Ok(number);
            }
        }
        if Instant::now() >= deadline {
            return Err("Patroni has no leader".into());
        }
        // No event tells of it.
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for one to be the leader, and for the other to be its synchronous standby.
async fn until_synchronous(leader: &Health, standby: &Health) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    while !(standby.is("sync").await && leader.is("primary").await) {
        if Instant::now() >= deadline {
            return Err("Patroni has no synchronous standby".into());
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Leads everybody to the leader.
async fn follow(front: Arc<Proxy>, states: [Health; 2], mut leader: usize) {
    loop {
        sleep(Duration::from_millis(100)).await;
        let other = 1 - leader;
        if states[other].is("primary").await {
            front.redirect(states[other].postgres);
            front.reset_all();
            leader = other;
        }
    }
}

fn settings(
    number: usize,
    daemon: &Daemon,
    binaries: &Binaries,
    etcd: SocketAddr,
    health: &Health,
) -> String {
    let Health { api, postgres, .. } = health;
    let folder = daemon.folder().display();
    let binaries = binaries.folder().display();
    // `no-locale` is a word, not a map.
    format!(
        "scope: torture
name: node{number}
restapi: {{listen: '{api}', connect_address: '{api}'}}
etcd3: {{hosts: '{etcd}'}}
bootstrap:
  dcs:
    ttl: 5
    loop_wait: 1
    retry_timeout: 2
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters: {{wal_retrieve_retry_interval: 100ms, wal_log_hints: 'on', max_connections: 200}}
  initdb: [{{encoding: UTF8}}, no-locale, {{auth: trust}}]
postgresql:
  listen: '{postgres}'
  connect_address: '{postgres}'
  data_dir: '{folder}/data'
  bin_dir: '{binaries}'
  pgpass: '{folder}/pgpass'
  parameters: {{unix_socket_directories: '{folder}'}}
  pg_hba: ['local all all trust', 'host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust']
  authentication:
    superuser: {{username: postgres}}
    replication: {{username: postgres}}
    rewind: {{username: postgres}}
"
    )
}
