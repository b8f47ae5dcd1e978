//! Where a database is.

use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::thread;
use std::time::Duration;
use std::{env, io};

use sqlx::Error;
use tokio::runtime;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use url::Url;

use crate::error::Engine;

/// A database on a server.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) url: Url,
    pub(crate) address: SocketAddr,
}

impl Place {
    pub(crate) async fn on(server: &Url, name: String, port: u16) -> Result<Self, Error> {
        let address = resolve(server, port).await?;
        let mut url = server.clone();
        url.set_path(&name);
        Ok(Self { name, url, address })
    }

    /// The URL with the server's address replaced.
    pub(crate) fn url_via(&self, proxy: SocketAddr) -> String {
        let mut url = self.url.clone();
        url.set_ip_host(proxy.ip()).expect("the URL has a host");
        url.set_port(Some(proxy.port()))
            .expect("the URL has a host");
        url.into()
    }
}

async fn resolve(server: &Url, port: u16) -> Result<SocketAddr, Error> {
    let host = server.host_str().unwrap_or_default();
    // An IPv6 address stands in brackets in a URL.
    let host = host.trim_matches(['[', ']']).to_owned();
    let port = server.port().unwrap_or(port);
    spawn_blocking(move || (host, port).to_socket_addrs()?.next().ok_or_else(not_found))
        .await
        .map_err(|error| Error::Io(error.into()))?
        .map_err(Error::Io)
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

pub(crate) fn timed_out() -> Error {
    Error::Io(io::ErrorKind::TimedOut.into())
}

/// The server that the user names, or else one of ours. Blocks while it starts.
pub(crate) fn server_url(engine: &'static Engine, own: impl FnOnce() -> String) -> Url {
    let url = env::var(engine.variable).unwrap_or_else(|_| own());
    parse(&url, engine)
}

fn parse(url: &str, engine: &'static Engine) -> Url {
    let Engine { variable, word, .. } = engine;
    let form = format!("write {word}://user:password@host:port/database");
    let parsed =
        Url::parse(url).unwrap_or_else(|error| panic!("{variable} is not a URL ({error}): {form}"));
    let by_socket = parsed
        .query_pairs()
        .any(|(name, _)| name == "host" || name == "hostaddr" || name == "socket");
    assert!(
        parsed.host_str().is_some_and(|host| !host.is_empty()) && !by_socket,
        "{variable} names no TCP host, which tests with a proxy need: {form}"
    );
    parsed
}

/// Runs the end of a database, and waits for it, so that a process that ends right after leaves
/// nothing on a foreign server.
pub(crate) fn run_to_end<F: Future<Output = Result<(), Error>>>(
    name: &str,
    dropping: impl FnOnce() -> F + Send,
) {
    let dropped = thread::scope(|scope| {
        let dropped = scope.spawn(|| {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(Error::Io)?;
            runtime.block_on(async {
                timeout(Duration::from_secs(20), dropping())
                    .await
                    .unwrap_or_else(|_| Err(timed_out()))
            })
        });
        dropped.join()
    });
    if let Ok(Err(error)) = dropped {
        eprintln!("database {name} is left: {error}");
    }
}
