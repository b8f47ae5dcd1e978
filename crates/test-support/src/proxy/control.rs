//! What the proxy is told, and what its connections tell.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::{Direction, Traffic};

/// Past that the timer is fine enough.
const FINE: Duration = Duration::from_millis(20);

/// Sleeps to a tenth of a millisecond or so. tokio's timer knows whole ones, and rounds up: it would
/// make two of a delay of one.
async fn sleep_finely(until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    if left > FINE {
        sleep_until(until).await;
    } else if !left.is_zero() {
        spawn_blocking(move || thread::sleep(left)).await.ok();
    }
}

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

    /// Waits until so many bytes, read at that time, may go on. What went before them was through at
    /// `free_at`, as they are then.
    pub(super) async fn passable(&self, read_at: Instant, bytes: usize, free_at: &mut Instant) {
        let traffic = *self.traffic.borrow();
        match traffic {
            Traffic::Pass | Traffic::Hold => {}
            Traffic::Delay(delay) => sleep_finely(read_at + delay).await,
            Traffic::Throttle { bytes_per_second } => {
                let time = bytes as f64 / f64::from(bytes_per_second);
                *free_at = read_at.max(*free_at) + Duration::from_secs_f64(time);
                sleep_finely(*free_at).await;
            }
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
