//! A TCP proxy on loopback that breaks connections when told to.

mod connection;
mod control;
mod frames;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use control::Control;

/// A way through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What happens to the bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    /// They are forwarded at once.
    #[default]
    Pass,
    /// Each arrives this much later: latency.
    Delay(Duration),
    /// So many arrive in a second, on each connection: bandwidth.
    Throttle {
        /// More than none.
        bytes_per_second: u32,
    },
    /// They stay where they are, and so does the news that the sender is gone: a black hole, or in
    /// one direction a half-open connection. As after a partition of a network, they arrive when
    /// it heals.
    Hold,
}

/// A TCP proxy between clients and one server, or some that take turns. Everything ends with its drop.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    control: Arc<Control>,
    gate: mpsc::Sender<Gate>,
    task: JoinHandle<()>,
}

/// Whether clients are let in, and how to say that it is done.
#[derive(Debug)]
struct Gate {
    open: bool,
    done: oneshot::Sender<io::Result<()>>,
}

impl Proxy {
    /// Starts a proxy to a server, on a free port of `127.0.0.1`.
    ///
    /// # Panics
    ///
    /// There is no free port.
    pub async fn start(server: SocketAddr) -> Self {
        Self::balance(&[server]).await
    }

    /// Starts a proxy that gives each new connection to the next of these servers, and passes over
    /// those that refuse it.
    ///
    /// # Panics
    ///
    /// There is no free port.
    pub async fn balance(servers: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let control = Arc::new(Control::to(servers));
        let (gate, orders) = mpsc::channel(1);
        let task = tokio::spawn(accept(listener, Arc::clone(&control), orders));
        Self {
            address,
            control,
            gate,
            task,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads to another server from now on. Open connections stay where they are.
    pub fn redirect(&self, server: SocketAddr) {
        self.control.redirect(&[server]);
    }

    /// Says what happens in one direction from now on, on all connections.
    pub fn set(&self, direction: Direction, traffic: Traffic) {
        self.control.way(direction).set(traffic);
    }

    /// Says what happens in both directions from now on, on all connections.
    pub fn set_both(&self, traffic: Traffic) {
        self.set(Direction::ToServer, traffic);
        self.set(Direction::ToClient, traffic);
    }

    /// Resets every open connection on both sides. New ones are let in.
    pub fn reset_all(&self) {
        self.control.reset_all();
    }

    /// Forwards this many more bytes in a direction, then resets the connection that the next byte
    /// is on. Happens once; other connections live on.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.control.way(direction).cut_after(bytes);
    }

    /// Waits until a cut that was ordered in this direction has happened.
    pub async fn cut_done(&self, direction: Direction) {
        self.control.way(direction).cut_done().await;
    }

    /// Stops listening: new connections are refused, open ones live on.
    ///
    /// # Panics
    ///
    /// Never: the proxy's task runs as long as the proxy.
    pub async fn refuse(&self) {
        self.order(false).await.expect("closing a socket succeeds");
    }

    /// Listens again.
    ///
    /// # Panics
    ///
    /// Another process has taken the port meanwhile.
    pub async fn accept(&self) {
        self.order(true).await.expect("the port is still free");
    }

    async fn order(&self, open: bool) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        let order = Gate { open, done };
        self.gate.send(order).await.map_err(io::Error::other)?;
        answer.await.map_err(io::Error::other)?
    }

    /// How often a PostgreSQL server has said `ReadyForQuery`, over all connections: that is how
    /// often a client waited for it.
    ///
    /// The one that ends a connection's start-up is not counted. Encrypted connections are not.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.control.round_trips()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts clients, and opens or shuts the gate. Owns the connections, which end with it.
async fn accept(listener: TcpListener, control: Arc<Control>, mut orders: mpsc::Receiver<Gate>) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => {
                let Some(Gate { open, done }) = order else { return };
                let outcome = set_gate(&mut listener, address, open).await;
                // Who gave the order may have stopped waiting.
                done.send(outcome).ok();
            }
            client = next_client(listener.as_ref()) => {
                let control = Arc::clone(&control);
                // A client that is gone before it was accepted is none.
                if let Ok(client) = client {
                    connections.spawn(connection::run(client, control));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn set_gate(
    listener: &mut Option<TcpListener>,
    address: SocketAddr,
    open: bool,
) -> io::Result<()> {
    if !open {
        *listener = None;
    } else if listener.is_none() {
        *listener = Some(TcpListener::bind(address).await?);
    }
    Ok(())
}

async fn next_client(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => std::future::pending().await,
    }
}
