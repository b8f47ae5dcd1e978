//! What the proxy is told, and what its connections tell.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::watch;
use tokio::time::sleep;

use super::{Direction, Traffic};

/// What all connections of a proxy share.
#[derive(Debug)]
pub(super) struct Control {
    servers: watch::Sender<Vec<SocketAddr>>,
    turns: AtomicUsize,
    to_server: Way,
    to_client: Way,
    resets: watch::Sender<u64>,
    round_trips: AtomicU64,
}

impl Control {
    pub(super) fn to(servers: &[SocketAddr]) -> Self {
        Self {
            servers: watch::Sender::new(servers.to_vec()),
            turns: AtomicUsize::default(),
            to_server: Way::default(),
            to_client: Way::default(),
            resets: watch::Sender::default(),
            round_trips: AtomicU64::default(),
        }
    }

    /// Where a new connection may lead to, in this order.
    pub(super) fn servers(&self) -> Vec<SocketAddr> {
        let mut servers = self.servers.borrow().clone();
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let first = turn.checked_rem(servers.len()).unwrap_or_default();
        servers.rotate_left(first);
        servers
    }

    pub(super) fn redirect(&self, servers: &[SocketAddr]) {
        self.servers.send_replace(servers.to_vec());
    }

    pub(super) fn way(&self, direction: Direction) -> &Way {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    pub(super) fn reset_all(&self) {
        self.resets.send_modify(|count| *count += 1);
    }

    /// Changes at every reset that is ordered from now on.
    pub(super) fn resets(&self) -> watch::Receiver<u64> {
        self.resets.subscribe()
    }

    pub(super) fn count_round_trips(&self, count: u64) {
        self.round_trips.fetch_add(count, Ordering::SeqCst);
    }

    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::SeqCst)
    }
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Way {
    traffic: watch::Sender<Traffic>,
    /// How many more bytes go through, if a cut is ordered.
    left: watch::Sender<Option<u64>>,
}

impl Way {
    pub(super) fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }

    pub(super) fn cut_after(&self, bytes: u64) {
        self.left.send_replace(Some(bytes));
    }

    pub(super) async fn cut_done(&self) {
        // The sender lives as long as we do, so waiting cannot fail.
        self.left.subscribe().wait_for(Option::is_none).await.ok();
    }

    /// Waits until what has been read may go on.
    pub(super) async fn passable(&self) {
        let traffic = *self.traffic.borrow();
        if let Traffic::Delay(delay) = traffic {
            sleep(delay).await;
        }
        // Held meanwhile, perhaps.
        self.traffic
            .subscribe()
            .wait_for(|traffic| *traffic != Traffic::Hold)
            .await
            .ok();
    }

    /// Takes `wanted` bytes out of what is left before a cut. Returns how many go through; fewer
    /// than wanted means that the cut is here.
    pub(super) fn take(&self, wanted: usize) -> usize {
        let mut granted = wanted;
        self.left.send_if_modified(|left| {
            let Some(bytes) = left else { return false };
            let fits = usize::try_from(*bytes).unwrap_or(usize::MAX);
            if fits < wanted {
                granted = fits;
                *left = None;
                return true;
            }
            *bytes -= u64::try_from(wanted).unwrap_or(*bytes);
            false
        });
        granted
    }
}
