//! MariaDB servers of our own: one, or three that are one cluster by Galera.

use std::net::SocketAddr;
use std::time::Duration;

use fastrand::Rng;
use sqlx::{Connection as _, MySqlConnection};
use test_support::{MariadbBinaries, MariadbNode, Proxy};
use tokio::time::sleep;

use crate::Outcome;
use crate::faults::Fault;

/// The servers, and before each a proxy that leads elsewhere while it is down: what a balancer with
/// health checks is in production.
pub(crate) struct Mariadb {
    nodes: Vec<MariadbNode>,
    fronts: Vec<Proxy>,
    dice: Rng,
}

/// The database on them.
const DATABASE: &str = "torture";

/// How long a member is cut off after it has seen that.
const ISOLATION: Duration = Duration::from_secs(3);

impl Mariadb {
    /// One server.
    pub(crate) async fn alone() -> Outcome<Self> {
        let node = MariadbNode::alone(&MariadbBinaries::find()?).await?;
        Self::with(vec![node]).await
    }

    /// Three servers, each of which takes writes.
    pub(crate) async fn cluster() -> Outcome<Self> {
        let nodes = MariadbNode::cluster(&MariadbBinaries::find()?).await?;
        Self::with(nodes).await
    }

    async fn with(nodes: Vec<MariadbNode>) -> Outcome<Self> {
        let mut fronts = Vec::new();
        for node in &nodes {
            fronts.push(Proxy::start(node.address()).await);
        }
        nodes[0].run(format!("CREATE DATABASE {DATABASE}")).await?;
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
            self.nodes[victim].cut_off().await?;
            sleep(ISOLATION).await;
            return Ok(self.nodes[victim].rejoin().await?);
        }
        let next = (victim + 1) % self.nodes.len();
        self.nodes[victim].crash().await?;
        self.fronts[victim].redirect(self.nodes[next].address());
        if next != victim {
            self.nodes[next].misses_one().await?;
        }
        self.nodes[victim].restart().await?;
        self.fronts[victim].redirect(self.nodes[victim].address());
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
            let mut conn = MySqlConnection::connect(&node.url("")).await?;
            let count: i64 = sqlx::query_scalar(sql).fetch_one(&mut conn).await?;
            sum += count;
        }
        Ok(sum)
    }

    pub(crate) async fn stop(self) {
        for node in self.nodes {
            node.stop().await;
        }
    }
}
