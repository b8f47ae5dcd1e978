//! Where PostgreSQL is.

use std::net::SocketAddr;
use std::time::Instant;

use test_support::{Binaries, PgBouncer, TestDatabase, postgres_database};
use tokio::sync::Mutex;
use url::Url;

use super::cluster::{Cluster, Replication};
use super::database::via;
use super::patroni::Patroni;
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
    Own(Box<Own>),
    /// Servers that fail over by themselves.
    Patroni(Box<Mutex<Patroni>>),
    /// On the server that `TEST_POSTGRES_URL` names, which is not ours to kill.
    Foreign(TestDatabase),
}

struct Own {
    cluster: Mutex<Cluster>,
    /// What becomes of it when its worst day comes.
    disaster: Fault,
    /// Where acknowledged commits are lost: when that happened last.
    lost: Option<Mutex<Option<Instant>>>,
    pooler: Option<Mutex<PgBouncer>>,
}

impl Own {
    fn new(cluster: Cluster, disaster: Fault) -> Self {
        Self {
            cluster: Mutex::new(cluster),
            disaster,
            lost: None,
            pooler: None,
        }
    }
}

impl Place {
    /// One server.
    pub(crate) async fn server() -> Outcome<Self> {
        match Binaries::find() {
            Ok(binaries) => {
                let cluster = Cluster::alone(&binaries).await?;
                Self::own(Own::new(cluster, Fault::Restart))
            }
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
        let cluster = Cluster::pair(&Binaries::find()?, replication).await?;
        let mut own = Own::new(cluster, Fault::FailOver);
        own.lost = (replication == Replication::Asynchronous).then(Mutex::default);
        Self::own(own)
    }

    /// One server, which is reached through PgBouncer.
    pub(crate) async fn pooled() -> Outcome<Self> {
        let cluster = Cluster::alone(&Binaries::find()?).await?;
        let pooler = PgBouncer::start(cluster.address()).await?;
        let (major, minor) = pooler.version();
        println!("PgBouncer {major}.{minor}");
        let address = pooler.address();
        let mut own = Own::new(cluster, Fault::Restart);
        own.pooler = Some(Mutex::new(pooler));
        Ok(Self {
            address,
            ..Self::own(own)?
        })
    }

    /// Two servers under Patroni.
    pub(crate) async fn patroni() -> Outcome<Self> {
        let patroni = Patroni::start(&Binaries::find()?).await?;
        let address = patroni.address();
        Ok(Self {
            url: format!("postgres://postgres@{address}/postgres").parse()?,
            address,
            name: "postgres".to_owned(),
            kind: Kind::Patroni(Box::new(Mutex::new(patroni))),
        })
    }

    fn own(mut own: Own) -> Outcome<Self> {
        let cluster = own.cluster.get_mut();
        Ok(Self {
            url: cluster.url().parse()?,
            address: cluster.address(),
            name: "postgres".to_owned(),
            kind: Kind::Own(Box::new(own)),
        })
    }

    /// Its URL, past any pooler.
    pub(crate) fn url(&self) -> &str {
        self.url.as_str()
    }

    pub(crate) fn url_via(&self, proxy: SocketAddr) -> String {
        via(&self.url, proxy)
    }

    /// Where servers reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The database's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether prepared statements are kept on the way there.
    pub(crate) async fn prepares(&self) -> bool {
        match &self.kind {
            Kind::Own(own) => match &own.pooler {
                Some(pooler) => pooler.lock().await.prepares(),
                None => true,
            },
            Kind::Patroni(_) | Kind::Foreign(_) => true,
        }
    }

    /// What only happens to it, and not on the way there.
    pub(crate) fn disasters(&self) -> Vec<Fault> {
        match &self.kind {
            Kind::Own(own) => {
                let pooler = own.pooler.as_ref().map(|_| Fault::KillPooler);
                [own.disaster].into_iter().chain(pooler).collect()
            }
            Kind::Patroni(_) => vec![Fault::KillLeader],
            Kind::Foreign(_) => Vec::new(),
        }
    }

    /// Lets one of those happen, and returns when all is as before.
    pub(crate) async fn suffer(&self, disaster: Fault) -> Outcome {
        let own = match &self.kind {
            Kind::Own(own) => own,
            Kind::Patroni(patroni) => return patroni.lock().await.kill_leader().await,
            Kind::Foreign(_) => return Ok(()),
        };
        if let (Fault::KillPooler, Some(pooler)) = (disaster, &own.pooler) {
            let mut pooler = pooler.lock().await;
            pooler.crash().await?;
            return Ok(pooler.restart().await?);
        }
        let mut cluster = own.cluster.lock().await;
        if disaster != Fault::FailOver {
            return cluster.restart().await;
        }
        let promoted = cluster.fail_over().await?;
        if let Some(lost) = &own.lost {
            *lost.lock().await = promoted;
        }
        Ok(())
    }

    /// Since when nothing that was acknowledged has been lost.
    pub(crate) async fn lost_until(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Own(own) => *own.lost.as_ref()?.lock().await,
            Kind::Patroni(_) | Kind::Foreign(_) => None,
        }
    }

    pub(crate) async fn stop(self) {
        match self.kind {
            Kind::Own(own) => {
                if let Some(pooler) = own.pooler {
                    pooler.into_inner().stop().await;
                }
                own.cluster.into_inner().stop().await;
            }
            Kind::Patroni(patroni) => patroni.into_inner().stop().await,
            Kind::Foreign(database) => drop(database),
        }
    }
}
