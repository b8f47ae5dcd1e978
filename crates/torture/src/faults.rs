//! What is done to the system, drawn from a seed.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use test_support::{Direction, Proxy, Traffic};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Outcome;
use crate::server::points::{Point, Trigger};
use crate::system::{System, Triggers};

/// What may be done to one server, or to the database of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Kill,
    /// SIGSTOP, and SIGCONT after `stale_after` or a little before.
    Stall,
    Reset,
    /// What is under way to or from the database stays where it is for a while.
    Hold,
    Delay,
    /// The connection breaks after some more bytes.
    Cut,
    /// The database ends a connection.
    Terminate,
    /// The database crashes, and recovers.
    Restart,
    /// The primary is killed, and the standby promoted.
    FailOver,
    /// Likewise, and Patroni promotes the standby.
    KillLeader,
    KillPooler,
    /// A member of a cluster is killed, and comes back.
    KillNode,
    /// A member is cut off from the others.
    Isolate,
    /// Somebody else writes to the SQLite file for two seconds.
    WriteLock,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "SIGKILL",
            Self::Stall => "SIGSTOP, SIGCONT",
            Self::Reset => "connections reset",
            Self::Hold => "connections held",
            Self::Delay => "connections delayed",
            Self::Cut => "connections cut after n bytes",
            Self::Terminate => "connections ended by the database",
            Self::Restart => "database crashed and restarted",
            Self::FailOver => "primary killed, standby promoted",
            Self::KillLeader => "leader killed",
            Self::KillNode => "node killed and restarted",
            Self::Isolate => "node cut off from the others",
            Self::KillPooler => "PgBouncer killed and restarted",
            Self::WriteLock => "write lock held for 2 s",
        })
    }
}

/// Faults on PostgreSQL, each as often as it is likely.
const POSTGRES: [Fault; 19] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Stall,
    Fault::Stall,
    Fault::Stall,
    Fault::Reset,
    Fault::Reset,
    Fault::Hold,
    Fault::Hold,
    Fault::Hold,
    Fault::Delay,
    Fault::Delay,
    Fault::Cut,
    Fault::Cut,
    Fault::Cut,
    Fault::Cut,
    Fault::Terminate,
    Fault::Terminate,
];

const SQLITE: [Fault; 9] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Stall,
    Fault::Stall,
    Fault::Stall,
    Fault::WriteLock,
];

/// The time from one fault to the next on PostgreSQL. They last longer, so that they meet.
const POSTGRES_PAUSE_MS: Range<u64> = 100..700;

/// Likewise on SQLite, where each stops all writing for a while.
const SQLITE_PAUSE_MS: Range<u64> = 400..1_600;

pub(crate) type Counts = BTreeMap<Fault, u64>;

/// Does damage until a time, and returns when the last fault is over, with what was done.
pub(crate) async fn rage(
    system: &Arc<System>,
    mut dice: fastrand::Rng,
    until: Instant,
) -> Outcome<Counts> {
    let (mut faults, pause) = match system.database.address(0) {
        Some(_) => (POSTGRES.to_vec(), POSTGRES_PAUSE_MS),
        None => (SQLITE.to_vec(), SQLITE_PAUSE_MS),
    };
    faults.extend(system.database.disasters());
    let mut counts = Counts::new();
    let mut running = JoinSet::new();
    loop {
        let next = Instant::now() + Duration::from_millis(dice.u64(pause.clone()));
        if next >= until {
            break;
        }
        sleep_until(next).await;
        let fault = faults[dice.usize(..faults.len())];
        *counts.entry(fault).or_default() += 1;
        let (system, dice) = (Arc::clone(system), dice.fork());
        running.spawn(async move { fault.happen(&system, dice).await });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(counts)
}

impl Fault {
    async fn happen(self, system: &System, mut dice: fastrand::Rng) -> Outcome {
        let member = &system.members[dice.usize(..system.members.len())];
        match self {
            Self::Kill => member.kill().await,
            Self::Stall => {
                member
                    .stall(Duration::from_millis(dice.u64(900..2_200)))
                    .await
            }
            Self::Terminate => return ignore_unreachable(system.database.terminate_one().await),
            Self::Restart
            | Self::FailOver
            | Self::KillLeader
            | Self::KillPooler
            | Self::KillNode
            | Self::Isolate => {
                return system.database.suffer(self).await;
            }
            Self::WriteLock => {
                let held = system
                    .database
                    .hold_write_lock(Duration::from_secs(2))
                    .await;
                return ignore_unreachable(held);
            }
            Self::Reset | Self::Hold | Self::Delay | Self::Cut => {
                if let Some(proxy) = &member.proxy {
                    self.on_the_way(proxy, dice).await;
                }
            }
        }
        Ok(())
    }

    /// Breaks the way to the database.
    async fn on_the_way(self, proxy: &Proxy, mut dice: fastrand::Rng) {
        let direction = [Direction::ToServer, Direction::ToClient][dice.usize(..2)];
        match self {
            Self::Hold => {
                let both = dice.bool();
                if both {
                    proxy.set_both(Traffic::Hold);
                } else {
                    proxy.set(direction, Traffic::Hold);
                }
                sleep(Duration::from_millis(dice.u64(200..3_000))).await;
                if dice.bool() {
                    proxy.reset_all();
                }
                proxy.set_both(Traffic::Pass);
            }
            Self::Delay => {
                let delay = Duration::from_millis(dice.u64(5..120));
                proxy.set(direction, Traffic::Delay(delay));
                sleep(Duration::from_millis(dice.u64(500..2_000))).await;
                proxy.set_both(Traffic::Pass);
            }
            Self::Cut => {
                proxy.cut_after(direction, dice.u64(..3_000));
                let patience = Duration::from_secs(3);
                if tokio::time::timeout(patience, proxy.cut_done(direction))
                    .await
                    .is_err()
                {
                    // Nobody sends: farther than anything goes.
                    proxy.cut_after(direction, u64::MAX);
                }
            }
            _ => proxy.reset_all(),
        }
    }
}

/// What is done over a connection of our own may meet another fault.
fn ignore_unreachable(done: Outcome) -> Outcome {
    match done {
        Err(error) if error.is::<sqlx::Error>() => Ok(()),
        done => done,
    }
}

const POINTS: [Point; 7] = [
    Point::Claimed,
    Point::Written,
    Point::Completing,
    Point::Committing,
    Point::Committed,
    Point::Answering,
    Point::Freeing,
];

/// Lets two of three processes kill themselves, at any point.
pub(crate) fn triggers(mut dice: fastrand::Rng) -> Triggers {
    Box::new(move || {
        let point = POINTS[dice.usize(..POINTS.len())];
        let pass = match point {
            Point::Committing | Point::Freeing => dice.u32(1..5),
            _ => dice.u32(1..30),
        };
        (dice.u32(..3) > 0).then_some(Trigger { point, pass })
    })
}
