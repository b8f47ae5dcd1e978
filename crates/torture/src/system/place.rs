//! Where PostgreSQL is.

use std::net::SocketAddr;
use std::time::Instant;

use test_support::{Binaries, TestDatabase, postgres_database};
use tokio::sync::Mutex;
use url::Url;

use super::cluster::{Cluster, Replication};
use crate::Outcome;
use crate::faults::Fault;

/// A PostgreSQL database, and what can be done to it.
pub(crate) struct Place {
    url: Url,
    address: SocketAddr,
    name: String,
    kind: Kind,
}

enum Kind {
    /// Servers of our own.
    Own {
        cluster: Box<Mutex<Cluster>>,
        disaster: Fault,
        /// Where acknowledged commits are lost: when that happened last.
        lost: Option<Mutex<Option<Instant>>>,
    },
    /// On the server that `TEST_POSTGRES_URL` names, which is not ours to kill.
    Foreign(TestDatabase),
}

impl Place {
    /// One server.
    pub(crate) async fn server() -> Outcome<Self> {
        match Binaries::find() {
            Ok(binaries) => Self::own(Cluster::alone(&binaries).await?, Fault::Restart, None),
            Err(error) if std::env::var_os("TEST_POSTGRES_URL").is_none() => Err(error.into()),
            Err(_) => {
                println!("PostgreSQL: the server of TEST_POSTGRES_URL, which is never restarted");
                let database = postgres_database().await;
                Ok(Self {
                    url: database.url().parse()?,
                    address: database.address(),
                    name: database.name().to_owned(),
                    kind: Kind::Foreign(database),
                })
            }
        }
    }

    /// A primary and a standby.
    pub(crate) async fn pair(replication: Replication) -> Outcome<Self> {
        let lost = match replication {
            Replication::Synchronous => None,
            Replication::Asynchronous => Some(Mutex::default()),
        };
        let cluster = Cluster::pair(&Binaries::find()?, replication).await?;
        Self::own(cluster, Fault::FailOver, lost)
    }

    fn own(
        cluster: Cluster,
        disaster: Fault,
        lost: Option<Mutex<Option<Instant>>>,
    ) -> Outcome<Self> {
        Ok(Self {
            url: cluster.url().parse()?,
            address: cluster.address(),
            name: "postgres".to_owned(),
            kind: Kind::Own {
                cluster: Box::new(Mutex::new(cluster)),
                disaster,
                lost,
            },
        })
    }

    pub(crate) fn url(&self) -> &str {
        self.url.as_str()
    }

    pub(crate) fn url_via(&self, proxy: SocketAddr) -> String {
        let mut url = self.url.clone();
        // A URL with a host takes both.
        let _ = url.set_ip_host(proxy.ip());
        let _ = url.set_port(Some(proxy.port()));
        url.into()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The database's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The worst that can happen to it.
    pub(crate) fn disaster(&self) -> Option<Fault> {
        match &self.kind {
            Kind::Own { disaster, .. } => Some(*disaster),
            Kind::Foreign(_) => None,
        }
    }

    /// Lets it happen, and returns when all is as before.
    pub(crate) async fn suffer(&self) -> Outcome {
        let Kind::Own {
            cluster,
            disaster,
            lost,
        } = &self.kind
        else {
            return Ok(());
        };
        let mut cluster = cluster.lock().await;
        if *disaster != Fault::FailOver {
            return cluster.restart().await;
        }
        let promoted = cluster.fail_over().await?;
        if let Some(lost) = lost {
            *lost.lock().await = promoted;
        }
        Ok(())
    }

    /// Since when nothing that was acknowledged has been lost.
    pub(crate) async fn lost_until(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Own {
                lost: Some(lost), ..
            } => *lost.lock().await,
            Kind::Own { .. } | Kind::Foreign(_) => None,
        }
    }

    pub(crate) async fn stop(self) {
        match self.kind {
            Kind::Own { cluster, .. } => cluster.into_inner().stop().await,
            Kind::Foreign(database) => drop(database),
        }
    }
}
