//! How much runs at once, and how it ends.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};

use crate::claim::RecordId;
use crate::patience::within;

/// Permits and the tracker of running work. The clones of a layer share one.
#[derive(Debug)]
pub(crate) struct Gate {
    permits: Arc<Semaphore>,
    /// As many may wait for others' results as may run.
    waiting: Semaphore,
    /// How many might have to be woken.
    listening: AtomicUsize,
    /// Who waits for a key waits for the others with the same hash too: as many bells as there
    /// are here serve any number of keys.
    bells: [Notify; 64],
    running: Arc<Count>,
    phase: watch::Sender<Phase>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Draining,
    Aborting,
}

/// One piece of work that goes on though its client has gone.
#[derive(Debug)]
pub(crate) struct Entry {
    permit: Option<OwnedSemaphorePermit>,
    running: Running,
}

/// How many run, and who waits for the last of them.
#[derive(Debug, Default)]
struct Count {
    running: AtomicUsize,
    none: Notify,
}

/// One more that listens.
#[derive(Debug)]
pub(crate) struct Listening<'a>(&'a AtomicUsize);

/// One more that runs.
#[derive(Debug)]
struct Running(Arc<Count>);

impl Gate {
    pub(crate) fn new(permits: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))),
            waiting: Semaphore::new(permits.min(Semaphore::MAX_PERMITS)),
            listening: AtomicUsize::new(0),
            bells: [const { Notify::const_new() }; 64],
            running: Arc::default(),
            phase: watch::Sender::new(Phase::Open),
        }
    }

    /// Lets work in, unless there is too much or the layer is being drained.
    pub(crate) fn enter(&self) -> Option<Entry> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        // Counted before the phase is read: `drain` either sees the entry or keeps it out.
        let entry = Entry {
            permit: Some(permit),
            running: self.track().running,
        };
        (*self.phase.borrow() == Phase::Open).then_some(entry)
    }

    /// Counts work that needs no permit, so that `drain` waits for it.
    pub(crate) fn track(&self) -> Entry {
        self.running.running.fetch_add(1, Ordering::SeqCst);
        Entry {
            permit: None,
            running: Running(Arc::clone(&self.running)),
        }
    }

    /// Whether the layer is not being drained.
    pub(crate) fn is_open(&self) -> bool {
        *self.phase.borrow() == Phase::Open
    }

    /// Lets an arrival wait for another's result, unless too many do.
    pub(crate) fn wait(&self) -> Option<SemaphorePermit<'_>> {
        self.waiting.try_acquire().ok()
    }

    /// Counts somebody who will ask to be [`woken`](Gate::woken).
    pub(crate) fn listen(&self) -> Listening<'_> {
        self.listening.fetch_add(1, Ordering::SeqCst);
        Listening(&self.listening)
    }

    /// Ends at the next [`wake`](Gate::wake) of that key; or, now and then, of another.
    pub(crate) fn woken(&self, id: &RecordId) -> Notified<'_> {
        self.bell(id).notified()
    }

    /// Wakes who waits for that key.
    pub(crate) fn wake(&self, id: &RecordId) {
        // Who begins to listen after this looks at the record after it was changed.
        if self.listening.load(Ordering::SeqCst) > 0 {
            self.bell(id).notify_waiters();
        }
    }

    fn bell(&self, id: &RecordId) -> &Notify {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        &self.bells[(hasher.finish() % 64) as usize]
    }

    /// Ends when running work must stop.
    pub(crate) async fn aborted(&self) {
        // The sender is `self`, so waiting cannot fail.
        let _ = self
            .phase
            .subscribe()
            .wait_for(|phase| *phase == Phase::Aborting)
            .await;
    }

    /// Keeps new work out, waits for what runs, then aborts it. Returns how much is left.
    pub(crate) async fn drain(&self, patience: Duration, clean_up: Duration) -> usize {
        self.phase.send_if_modified(|phase| {
            let open = *phase == Phase::Open;
            if open {
                *phase = Phase::Draining;
            }
            open
        });
        if within(patience, self.running.none()).await.is_err() {
            self.phase.send_replace(Phase::Aborting);
            let _ = within(clean_up, self.running.none()).await;
        }
        self.running.running.load(Ordering::SeqCst)
    }
}

impl Count {
    /// Ends when none runs.
    async fn none(&self) {
        loop {
            let mut none = pin!(self.none.notified());
            // Before the count is read: the last one then ends either before or after both.
            none.as_mut().enable();
            if self.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Entry {
    /// Gives the permit back though some cleaning up still runs.
    pub(crate) fn release_permit(&mut self) {
        self.permit = None;
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{IdempotencyKey, Operation, Owner};

    const PATIENCE: Duration = Duration::from_secs(10);

    fn id(key: &str) -> RecordId {
        RecordId {
            owner: Owner::shared(),
            operation: Operation::from_static("publish"),
            key: IdempotencyKey::from_text(key).expect("a key"),
        }
    }

    /// R58: as many run as there are permits; one that is given back serves the next, though what it was
    /// for still cleans up.
    #[test]
    fn permits_bound_what_runs() {
        let gate = Gate::new(2);
        let mut first = gate.enter().expect("a permit");
        let second = gate.enter().expect("a permit");
        assert!(gate.enter().is_none());
        first.release_permit();
        let third = gate.enter().expect("the first one's permit");
        drop((first, second, third));
        assert!(gate.enter().is_some());
    }

    /// As many wait as may run, and no more.
    #[test]
    fn permits_bound_who_waits() {
        let gate = Gate::new(1);
        let waiting = gate.wait().expect("the first one may wait");
        assert!(gate.wait().is_none());
        drop(waiting);
        assert!(gate.wait().is_some());
    }

    /// Who listens for a key is woken for it, however keys share their bells; and nobody is rung for
    /// once nobody listens.
    #[tokio::test(start_paused = true)]
    async fn who_listens_is_woken() {
        let gate = Gate::new(1);
        for key in 0..500 {
            let id = id(&key.to_string());
            let _listening = gate.listen();
            let mut woken = pin!(gate.woken(&id));
            woken.as_mut().enable();
            gate.wake(&id);
            assert_eq!(within(PATIENCE, woken).await, Ok(()), "{key}");
        }
        assert_eq!(gate.listening.load(Ordering::SeqCst), 0);
    }

    /// R59: a drain ends when the last one does, and aborts nothing that ends in time.
    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_what_runs() {
        let gate = Gate::new(2);
        assert!(gate.is_open());
        let (one, other) = (gate.enter().expect("a permit"), gate.track());
        let begun = Instant::now();
        let running = async {
            sleep(PATIENCE / 4).await;
            drop(one);
            assert!(!gate.is_open());
            assert!(gate.enter().is_none(), "new work is kept out");
            sleep(PATIENCE / 4).await;
            drop(other);
        };
        let (left, ()) = tokio::join!(gate.drain(PATIENCE, PATIENCE), running);
        assert_eq!(left, 0);
        assert_eq!(begun.elapsed(), PATIENCE / 2, "it has not waited for more");
        assert!(within(PATIENCE, gate.aborted()).await.is_err());
    }

    /// What does not end in time is told to; what does not end then either is counted.
    #[tokio::test(start_paused = true)]
    async fn a_drain_has_an_end() {
        let gate = Gate::new(2);
        let (one, _other) = (gate.enter().expect("a permit"), gate.enter());
        let begun = Instant::now();
        let running = async {
            gate.aborted().await;
            assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
            drop(one);
        };
        let (left, ()) = tokio::join!(gate.drain(PATIENCE, PATIENCE / 2), running);
        assert_eq!(left, 1);
        assert_eq!(begun.elapsed(), PATIENCE + PATIENCE / 2);
        assert!(gate.enter().is_none(), "there is no way back");
    }
}
