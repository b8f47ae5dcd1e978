//! A database of its own for each test.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::Error;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use url::Url;

use super::{ENGINE, MariadbServer, MysqlAdmin};
use crate::names::fresh_name;
use crate::place::{self, Place};

/// A fresh MySQL or MariaDB database, dropped at the end together with the connections to it.
#[derive(Debug)]
pub struct MysqlDatabase(Place);

/// Creates a fresh database on the shared server, which starts if it is not there yet.
///
/// # Panics
///
/// No server can be had. The message says what to do.
pub async fn mysql_database() -> MysqlDatabase {
    let server = spawn_blocking(server_url)
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    MysqlDatabase::create(server).await.unwrap_or_else(|error| {
        panic!("could not create a database on the MySQL server (see TEST_MYSQL_URL): {error}")
    })
}

impl MysqlDatabase {
    async fn create(server: &Url) -> Result<Self, Error> {
        let name = fresh_name();
        MysqlAdmin::connect(server.as_str())
            .await?
            .create(&name)
            .await?;
        Place::on(server, name, 3306).await.map(Self)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its URL, over TCP.
    #[must_use]
    pub fn url(&self) -> &str {
        self.0.url.as_str()
    }

    /// Where its server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Its URL with the server's address replaced by that of a proxy.
    #[must_use]
    pub fn url_via(&self, proxy: SocketAddr) -> String {
        self.0.url_via(proxy)
    }

    /// Checks that no connection to it stays idle in a transaction.
    ///
    /// A rollback may still be on its way when the answer is out, so this waits up to five seconds.
    ///
    /// # Panics
    ///
    /// One stays so, or the server does not answer.
    pub async fn assert_none_idle_in_transaction(&self) {
        let mut admin = MysqlAdmin::connect(server_url().as_str())
            .await
            .expect("the server answers");
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let count = admin.idle_in_transaction(self.name()).await;
            let count = count.expect("the server tells of its transactions");
            if count == 0 {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{count} connections are idle in transaction"
            );
            // No event tells of it.
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The URL of the shared server, as one who may create databases. Blocks while it starts.
pub(super) fn server_url() -> &'static Url {
    static URL: OnceLock<Url> = OnceLock::new();
    // A server of our own lives as long as the process: the pipe to its shell closes with it.
    static OWN: OnceLock<MariadbServer> = OnceLock::new();
    let own =
        || OWN.get_or_init(|| MariadbServer::start().unwrap_or_else(|error| panic!("{error}")));
    URL.get_or_init(|| place::server_url(&ENGINE, || own().url()))
}

impl Drop for MysqlDatabase {
    fn drop(&mut self) {
        let name = &self.0.name;
        place::run_to_end(name, || async move {
            MysqlAdmin::connect(server_url().as_str())
                .await?
                .drop(name)
                .await
        });
    }
}
