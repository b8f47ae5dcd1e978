//! A database of its own for each test.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::{Connection as _, Error, PgConnection};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use url::Url;

use super::{Admin, ENGINE, PostgresServer};
use crate::names::fresh_name;
use crate::place::{self, Place};

/// A fresh PostgreSQL database, dropped at the end together with the connections to it.
#[derive(Debug)]
pub struct TestDatabase {
    place: Place,
    socket_folder: Option<String>,
}

/// Creates a fresh database on the shared server, which starts if it is not there yet.
///
/// # Panics
///
/// No server can be had. The message says what to do.
pub async fn postgres_database() -> TestDatabase {
    let server = spawn_blocking(server_url)
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    TestDatabase::create(server).await.unwrap_or_else(|error| {
        panic!(
            "could not create a database on the PostgreSQL server (see TEST_POSTGRES_URL): {error}"
        )
    })
}

impl TestDatabase {
    async fn create(server: &Url) -> Result<Self, Error> {
        let mut admin = Admin::connect(server.as_str()).await?;
        let name = fresh_name();
        admin.create(&name).await?;
        let place = Place::on(server, name, 5432).await?;
        let socket_folder = admin.socket_folder(place.address).await;
        Ok(Self {
            place,
            socket_folder,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// Its URL, over TCP.
    #[must_use]
    pub fn url(&self) -> &str {
        self.place.url.as_str()
    }

    /// Its URL over the server's unix socket. None where the server is not on this machine or
    /// does not tell; a server of ours always has one.
    #[must_use]
    pub fn socket_url(&self) -> Option<String> {
        let folder = self.socket_folder.as_deref()?;
        let mut url = self.place.url.clone();
        url.query_pairs_mut().append_pair("host", folder);
        Some(url.into())
    }

    /// Where its server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.place.address
    }

    /// Its URL with the server's address replaced by that of a proxy.
    ///
    /// # Panics
    ///
    /// Never: the URL has a host.
    #[must_use]
    pub fn url_via(&self, proxy: SocketAddr) -> String {
        self.place.url_via(proxy)
    }

    /// Checks that no connection to it stays idle in transaction.
    ///
    /// A rollback may still be on its way when the answer is out, so this waits up to five seconds.
    ///
    /// # Panics
    ///
    /// One stays so, or the server does not answer.
    pub async fn assert_none_idle_in_transaction(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let count = idle_in_transaction(self.url()).await;
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

/// Counts the connections to a URL's database that are idle in transaction, aborted ones too.
///
/// # Panics
///
/// The database does not answer.
pub async fn idle_in_transaction(url: &str) -> i64 {
    count_idle(url)
        .await
        .unwrap_or_else(|error| panic!("could not read pg_stat_activity: {error}"))
}

async fn count_idle(url: &str) -> Result<i64, Error> {
    let mut connection = PgConnection::connect(url).await?;
    let count = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND starts_with(state, 'idle in transaction')",
    )
    .fetch_one(&mut connection)
    .await?;
    connection.close().await?;
    Ok(count)
}

/// The URL of the shared server, as one who may create databases. Blocks while it starts.
pub(super) fn server_url() -> &'static Url {
    static URL: OnceLock<Url> = OnceLock::new();
    // A server of our own lives as long as the process: the pipe to its shell closes with it.
    static OWN: OnceLock<PostgresServer> = OnceLock::new();
    let own =
        || OWN.get_or_init(|| PostgresServer::start().unwrap_or_else(|error| panic!("{error}")));
    URL.get_or_init(|| place::server_url(&ENGINE, || own().url()))
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let name = &self.place.name;
        place::run_to_end(name, || async move {
            Admin::connect(server_url().as_str())
                .await?
                .drop(name)
                .await
        });
    }
}
