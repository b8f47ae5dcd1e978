//! PostgreSQL servers of our own, behind an address that stays the same.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};
use test_support::{Binaries, Direction, PostgresNode, Proxy, ServerSettings, Traffic};
use tokio::time::sleep;

use crate::Outcome;

/// A primary, alone or with a standby, and a proxy that leads to it wherever it is: what a virtual
/// address or a balancer with health checks is in production.
pub(crate) struct Cluster {
    front: Proxy,
    primary: PostgresNode,
    standby: Option<Standby>,
}

struct Standby {
    node: PostgresNode,
    /// Between the two servers, where the standby is to be behind.
    lag: Option<Proxy>,
}

/// How a commit gets to the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replication {
    /// Before the client is told of it.
    Synchronous,
    /// Some time later.
    Asynchronous,
}

/// How far an asynchronous standby is behind when its primary dies.
const LAG: Duration = Duration::from_millis(300);

/// How long a new standby may take to catch up.
const CATCHING_UP: Duration = Duration::from_secs(30);

impl Cluster {
    pub(crate) async fn alone(binaries: &Binaries) -> Outcome<Self> {
        let settings = ServerSettings::default().durable();
        let primary = PostgresNode::primary(binaries, &settings).await?;
        let front = Proxy::start(primary.address()).await;
        Ok(Self {
            front,
            primary,
            standby: None,
        })
    }

    pub(crate) async fn pair(binaries: &Binaries, replication: Replication) -> Outcome<Self> {
        let settings = ServerSettings::default()
            .durable()
            .set("wal_retrieve_retry_interval", "100ms")
            .set("wal_keep_size", "1GB");
        let primary = PostgresNode::primary(binaries, &settings).await?;
        let lag = match replication {
            Replication::Synchronous => None,
            Replication::Asynchronous => Some(Proxy::start(primary.address()).await),
        };
        let source = lag.as_ref().map_or(primary.address(), Proxy::address);
        let node = PostgresNode::standby(binaries, &settings, source).await?;
        let front = Proxy::start(primary.address()).await;
        let mut cluster = Self {
            front,
            primary,
            standby: Some(Standby { node, lag }),
        };
        cluster.wait_for_standby().await?;
        Ok(cluster)
    }

    /// Where the primary is, whichever server that is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.front.address()
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// Kills the server, and returns when it has recovered.
    pub(crate) async fn restart(&mut self) -> Outcome {
        self.primary.crash().await?;
        Ok(self.primary.restart().await?)
    }

    /// Kills the primary, promotes the standby, leads everybody there, and makes a standby of the old
    /// primary. Returns when the new primary let clients in, or `None` where there is no standby.
    pub(crate) async fn fail_over(&mut self) -> Outcome<Option<Instant>> {
        let Some(standby) = &mut self.standby else {
            return Ok(None);
        };
        if let Some(lag) = &standby.lag {
            lag.set(Direction::ToClient, Traffic::Hold);
            sleep(LAG).await;
        }
        self.primary.crash().await?;
        if let Some(lag) = &standby.lag {
            lag.reset_all();
            lag.set_both(Traffic::Pass);
        }
        std::mem::swap(&mut self.primary, &mut standby.node);
        if let Some(lag) = &standby.lag {
            lag.redirect(self.primary.address());
        }
        let source = standby.lag.as_ref();
        let source = source.map_or(self.primary.address(), Proxy::address);
        let mut conn = PgConnection::connect(&self.primary.url()).await?;
        sqlx::query("SELECT pg_promote()")
            .execute(&mut conn)
            .await?;
        // Nobody could confirm a commit yet.
        require_standby(&mut conn, false).await?;
        self.front.redirect(self.primary.address());
        self.front.reset_all();
        let promoted = Instant::now();
        standby.node.follow(source).await?;
        self.wait_for_standby().await?;
        Ok(Some(promoted))
    }

    /// Waits for the standby to be there, and from then on for each commit to be on it, too.
    async fn wait_for_standby(&mut self) -> Outcome {
        let Some(standby) = &self.standby else {
            return Ok(());
        };
        let mut conn = PgConnection::connect(&self.primary.url()).await?;
        let wanted = match standby.lag {
            None => "sync",
            Some(_) => "async",
        };
        require_standby(&mut conn, standby.lag.is_none()).await?;
        let deadline = Instant::now() + CATCHING_UP;
        let sql = "SELECT count(*) FROM pg_stat_replication \
             WHERE application_name = 'standby' AND state = 'streaming' AND sync_state = $1";
        loop {
            let count = sqlx::query_scalar(sql).bind(wanted);
            let count: i64 = count.fetch_one(&mut conn).await?;
            if count == 1 {
                return Ok(conn.close().await?);
            }
            if Instant::now() >= deadline {
                return Err("the standby does not catch up".into());
            }
            // No event tells of it.
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn stop(self) {
        if let Some(standby) = self.standby {
            standby.node.stop().await;
        }
        self.primary.stop().await;
    }
}

async fn require_standby(conn: &mut PgConnection, required: bool) -> sqlx::Result<()> {
    let sql = if required {
        "ALTER SYSTEM SET synchronous_standby_names = 'standby'"
    } else {
        "ALTER SYSTEM SET synchronous_standby_names = ''"
    };
    // ALTER SYSTEM cannot be in a transaction, which several statements in one message are. It writes
    // no log, so it waits for no standby.
    sqlx::raw_sql(sql).execute(&mut *conn).await?;
    let reload = sqlx::query("SELECT pg_reload_conf()");
    reload.execute(conn).await?;
    Ok(())
}
