//! What is tortured: servers, a database, and proxies between them.

mod cluster;
pub(crate) mod database;
pub(crate) mod log;
mod mariadb;
mod member;
mod patroni;
mod place;

use std::sync::Arc;
use std::time::Instant;

use test_support::{Proxy, Traffic};

use self::database::{Database, Engine, Isolation};
use self::log::Log;
use self::member::Settings;
pub(crate) use self::member::{Member, Triggers};
use crate::Outcome;

pub(crate) struct System {
    pub(crate) database: Database,
    pub(crate) members: Vec<Member>,
    pub(crate) log: Arc<Log>,
}

/// How each of its servers behaves.
pub(crate) struct Manner {
    pub(crate) renew: bool,
    pub(crate) wait_ms: u64,
    pub(crate) triggers: Triggers,
}

impl System {
    /// Starts a database and one server for each manner.
    pub(crate) async fn start(
        engine: Engine,
        isolation: Isolation,
        manners: Vec<Manner>,
        began: Instant,
    ) -> Outcome<Self> {
        let database = Database::start(engine, isolation).await?;
        let log = Arc::new(Log::new(began));
        let mut members = Vec::new();
        for (number, manner) in manners.into_iter().enumerate() {
            let proxy = match database.address(number) {
                Some(address) => Some(Proxy::start(address).await),
                None => None,
            };
            let settings = Settings {
                number,
                url: database.url_via(proxy.as_ref().map(Proxy::address)),
                unprepared: !database.prepares().await,
                renew: manner.renew,
                wait_ms: manner.wait_ms,
                triggers: manner.triggers,
                log: Arc::clone(&log),
            };
            members.push(Member::start(settings, proxy).await?);
        }
        Ok(Self {
            database,
            members,
            log,
        })
    }

    /// Returns when all servers run, none will kill itself, and nothing is in their way.
    pub(crate) async fn calm(&self) {
        for member in &self.members {
            if let Some(proxy) = &member.proxy {
                proxy.set_both(Traffic::Pass);
            }
        }
        for member in &self.members {
            member.calm().await;
        }
    }

    pub(crate) async fn stop(self) -> Outcome {
        for member in self.members {
            member.stop().await?;
        }
        self.database.stop().await
    }
}
