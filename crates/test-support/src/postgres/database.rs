//! A database of its own for each test.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::thread;
use std::time::Duration;

use sqlx::{Connection as _, Error, PgConnection};
use tokio::runtime;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::admin::{Admin, timed_out};
use super::shared::{fresh_name, server_url};

/// A fresh PostgreSQL database, dropped at the end together with the connections to it.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    url: Url,
    address: SocketAddr,
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
        let address = resolve(server).await?;
        let socket_folder = admin.socket_folder(address).await;
        let mut url = server.clone();
        url.set_path(&name);
        Ok(Self {
            name,
            url,
            address,
            socket_folder,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its URL, over TCP.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Its URL over the server's unix socket. None where the server is not on this machine or
    /// does not tell; a server of ours always has one.
    #[must_use]
    pub fn socket_url(&self) -> Option<String> {
        let folder = self.socket_folder.as_deref()?;
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("host", folder);
        Some(url.into())
    }

    /// Where its server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL with the server's address replaced by that of a proxy.
    ///
    /// # Panics
    ///
    /// Never: the URL has a host.
    #[must_use]
    pub fn url_via(&self, proxy: SocketAddr) -> String {
        let mut url = self.url.clone();
        url.set_ip_host(proxy.ip()).expect("the URL has a host");
        url.set_port(Some(proxy.port()))
            .expect("the URL has a host");
        url.into()
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

async fn resolve(server: &Url) -> Result<SocketAddr, Error> {
    let host = server.host_str().unwrap_or_default();
    // An IPv6 address stands in brackets in a URL.
    let host = host.trim_matches(['[', ']']).to_owned();
    let port = server.port().unwrap_or(5432);
    spawn_blocking(move || (host, port).to_socket_addrs()?.next().ok_or_else(not_found))
        .await
        .map_err(|error| Error::Io(error.into()))?
        .map_err(Error::Io)
}

fn not_found() -> std::io::Error {
    std::io::ErrorKind::NotFound.into()
}

impl Drop for TestDatabase {
    /// Waits for it, so that a process that ends right after leaves nothing on a foreign server.
    fn drop(&mut self) {
        let name = self.name.clone();
        let dropped = thread::spawn(move || drop_database(&name)).join();
        if let Ok(Err(error)) = dropped {
            eprintln!("database {} is left: {error}", self.name);
        }
    }
}

fn drop_database(name: &str) -> Result<(), Error> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Io)?;
    let dropping = async {
        let mut admin = Admin::connect(server_url().as_str()).await?;
        admin.drop(name).await
    };
    runtime.block_on(async {
        timeout(Duration::from_secs(20), dropping)
            .await
            .unwrap_or_else(|_| Err(timed_out()))
    })
}
