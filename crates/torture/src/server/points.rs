//! Where a server kills itself.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::process::abort;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::timeout;

/// A place on the way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Point {
    /// The key is claimed, and the handler has not begun.
    Claimed,
    /// The handler has made its first write, of two.
    Written,
    /// The handler has answered, and the record is not completed.
    Completing,
    /// COMMIT is on its way.
    Committing,
    /// COMMIT has succeeded, and nobody was told.
    Committed,
    /// The layer has given its answer out, and no byte of it has been sent.
    Answering,
    /// The writes are rolled back, and the key is not free.
    Freeing,
}

impl Point {
    /// Whether the effect is there for certain once a server has died here; `None` in the middle.
    pub(crate) fn is_after_commit(self) -> Option<bool> {
        match self {
            Self::Claimed | Self::Written | Self::Completing | Self::Freeing => Some(false),
            Self::Committing => None,
            Self::Committed | Self::Answering => Some(true),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Claimed => "claimed",
            Self::Written => "written",
            Self::Completing => "completing",
            Self::Committing => "committing",
            Self::Committed => "committed",
            Self::Answering => "answering",
            Self::Freeing => "freeing",
        })
    }
}

/// What a server says on standard error before it kills itself, followed by the point.
pub(crate) const LAST_WORDS: &str = "killed at ";

/// The n-th pass of a point: `committed:3`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trigger {
    pub(crate) point: Point,
    pub(crate) pass: u32,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.point, self.pass)
    }
}

impl FromStr for Trigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (point, pass) = text.split_once(':').ok_or("write POINT:PASS")?;
        Ok(Self {
            point: Point::from_str(point, false)?,
            pass: pass.parse().map_err(|_| "PASS is a number, from 1")?,
        })
    }
}

/// Kills the process where its trigger says. Clones are one.
#[derive(Clone)]
pub(crate) struct Mine(Arc<Inner>);

struct Inner {
    trigger: Option<Trigger>,
    passed: AtomicU32,
    completing: AtomicU32,
}

/// How long completion runs before it is in the middle of a COMMIT that lingers.
const FUSE: Duration = Duration::from_millis(50);

impl Mine {
    pub(crate) fn new(trigger: Option<Trigger>) -> Self {
        Self(Arc::new(Inner {
            trigger,
            passed: AtomicU32::new(0),
            completing: AtomicU32::new(0),
        }))
    }

    /// Dies, if this is the place and the time.
    pub(crate) fn pass(&self, point: Point) {
        let Some(trigger) = self.0.trigger.filter(|trigger| trigger.point == point) else {
            return;
        };
        if self.0.passed.fetch_add(1, SeqCst) + 1 == trigger.pass {
            eprintln!("{LAST_WORDS}{point}");
            // Whatever comes of it, this process ends here.
            let _ = kill_process(getpid(), Signal::KILL);
            abort();
        }
    }

    /// Runs a completion. One that takes longer than the fuse passes the middle of its COMMIT.
    pub(crate) async fn amid<T>(&self, completion: impl Future<Output = T>) -> T {
        self.0.completing.fetch_add(1, SeqCst);
        let _over = Over(self);
        let mut completion = pin!(completion);
        if let Ok(done) = timeout(FUSE, completion.as_mut()).await {
            return done;
        }
        self.pass(Point::Committing);
        completion.await
    }

    /// Called by a database in the middle of any COMMIT.
    pub(crate) fn amid_commit(&self) {
        if self.0.completing.load(SeqCst) > 0 {
            self.pass(Point::Committing);
        }
    }
}

/// A completion ends by being dropped, too.
struct Over<'a>(&'a Mine);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.0.completing.fetch_sub(1, SeqCst);
    }
}
