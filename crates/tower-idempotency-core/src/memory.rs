//! A store in memory, for tests and docs: whatever it promises ends with the process.

mod row;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum_core::extract::FromRequestParts;
use http::request::Parts;

use self::row::{Row, State};
use crate::claim::{Claim, ClaimOutcome, ClaimToken, RecordId};
use crate::error::{StoreError, TxError};
use crate::lease::Lease;
use crate::owner::Owner;
use crate::problem::{Problem, ProblemKind};
use crate::record::{Decision, Record, StoredResponse};
use crate::resource::{ResourceRef, TombstoneResource};
use crate::slot::{Closed, TxGuard, TxSlot};
use crate::store::{Completion, Resolution, Rollback, Store};

/// How long a claim must have been stale to be purged.
const PURGE_STALE_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Keeps records in memory.
#[derive(Clone)]
pub struct MemoryStore {
    clock: MemoryClock,
    rows: Arc<Mutex<HashMap<RecordId, Row>>>,
}

/// The clock of a [`MemoryStore`]: it starts at zero and can be moved by hand.
#[derive(Clone, Debug)]
pub struct MemoryClock {
    started: Option<Instant>,
    offset_ms: Arc<AtomicU64>,
}

impl MemoryClock {
    /// A clock that runs.
    #[must_use]
    pub fn running() -> Self {
        Self {
            started: Some(Instant::now()),
            offset_ms: Arc::default(),
        }
    }

    /// A clock that stands still unless it is moved.
    #[must_use]
    pub fn standing() -> Self {
        Self {
            started: None,
            offset_ms: Arc::default(),
        }
    }

    /// Moves the clock and its clones, by whole milliseconds.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.offset_ms.fetch_add(by, Ordering::SeqCst);
    }

    fn now(&self) -> Duration {
        let ran = self
            .started
            .map_or(Duration::ZERO, |started| started.elapsed());
        ran + Duration::from_millis(self.offset_ms.load(Ordering::SeqCst))
    }
}

/// The transaction of a [`MemoryStore`]: a list of writes that run at the commit.
#[derive(Clone, Debug)]
pub struct MemoryTx(TxSlot<Writes>);

/// What a handler means to write: see [`MemoryTx::acquire`].
#[derive(Default)]
pub struct Writes {
    staged: Vec<Box<dyn FnOnce() + Send>>,
    buried: Vec<TombstoneResource>,
    ended: bool,
}

impl MemoryTx {
    /// Lends the list of writes.
    ///
    /// # Errors
    ///
    /// When an earlier guard is still alive, or the request has been answered.
    pub async fn acquire(&self, store: &MemoryStore) -> Result<TxGuard<Writes>, TxError> {
        let open = || self.0.lease().begin(store, async { Ok(Writes::default()) });
        self.0.acquire(open).await
    }

    /// Notes what the request made, so that deleting it can bury the record.
    pub fn made(&self, resource_ref: ResourceRef) {
        self.0.lease().made(resource_ref);
    }
}

impl Writes {
    /// Runs `write` when the request's record is completed, or never. It must not use the store.
    pub fn on_commit(&mut self, write: impl FnOnce() + Send + 'static) {
        self.staged.push(Box::new(write));
    }

    /// Does what a handler must not do: ends the transaction by hand, as a `COMMIT` would.
    pub fn commit_by_hand(&mut self) {
        self.staged.drain(..).for_each(|write| write());
        self.ended = true;
    }

    fn commit(self, rows: &mut HashMap<RecordId, Row>) {
        self.staged.into_iter().for_each(|write| write());
        for resource in self.buried {
            for (id, row) in rows.iter_mut() {
                if row.is_of(id, &resource) {
                    row.state = State::Tombstone;
                }
            }
        }
    }
}

impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writes")
            .field("staged", &self.staged.len())
            .finish_non_exhaustive()
    }
}

/// Rejects with the problem `layer-missing` where no layer over a [`MemoryStore`] is around the
/// handler.
impl<S: Sync> FromRequestParts<S> for MemoryTx {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts
            .extensions
            .get()
            .cloned()
            .ok_or_else(|| ProblemKind::LayerMissing.into())
    }
}

impl MemoryStore {
    /// An empty store with a running clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(MemoryClock::running())
    }

    /// An empty store with that clock.
    #[must_use]
    pub fn with_clock(clock: MemoryClock) -> Self {
        Self {
            clock,
            rows: Arc::default(),
        }
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows().len()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows().is_empty()
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<RecordId, Row>> {
        // Every change below is one assignment, so a panic leaves no half-written row.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the row if it is still that claim's, and claimed.
    fn remove(&self, id: &RecordId, token: &ClaimToken) -> bool {
        let mut rows = self.rows();
        let held = rows.get(id).is_some_and(|row| row.held_by(token));
        if held {
            rows.remove(id);
        }
        held
    }

    /// Changes the row if it is still that claim's, and claimed.
    fn change(&self, claim: &Claim, change: impl FnOnce(&mut Row, Duration)) -> bool {
        let now = self.clock.now();
        match self.rows().get_mut(&claim.id) {
            Some(row) if row.held_by(&claim.token) => {
                change(row, now);
                true
            }
            _ => false,
        }
    }

    fn remove_where(&self, limit: usize, doomed: impl Fn(&RecordId, &Row) -> bool) -> u64 {
        let mut removed = 0;
        self.rows().retain(|id, row| {
            let remove = removed < limit && doomed(id, row);
            removed += usize::from(remove);
            !remove
        });
        removed as u64
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    type Tx = MemoryTx;

    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let now = self.clock.now();
        let taken_over = match self.rows().entry(claim.id.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Row::claimed(claim, now));
                false
            }
            Entry::Occupied(mut row) => match row.get().read(now).decide(&claim.fingerprint) {
                Decision::Answer(outcome) => return Ok(outcome),
                Decision::Replace { stale, .. } => {
                    row.insert(Row::claimed(claim, now));
                    stale
                }
            },
        };
        Ok(ClaimOutcome::Acquired { taken_over })
    }

    fn lend(&self, lease: Lease) -> MemoryTx {
        MemoryTx(TxSlot::new(lease))
    }

    async fn complete(
        &self,
        tx: &MemoryTx,
        claim: &Claim,
        response: &StoredResponse,
    ) -> Completion {
        let writes = match tx.0.close() {
            Closed::Held => return Completion::Leaked,
            Closed::Unused => Writes::default(),
            Closed::Begun(writes) => writes,
        };
        let now = self.clock.now();
        let mut rows = self.rows();
        if !rows
            .get(&claim.id)
            .is_some_and(|row| row.held_by(&claim.token))
        {
            return Completion::Lost;
        }
        if writes.ended {
            return Completion::NotOurs;
        }
        writes.commit(&mut rows);
        if let Some(row) = rows.get_mut(&claim.id) {
            row.complete(response.clone(), claim.ttl.map(|ttl| now + ttl));
        }
        Completion::Committed
    }

    async fn commit(&self, tx: &MemoryTx) -> Completion {
        match tx.0.close() {
            Closed::Held => return Completion::Leaked,
            Closed::Unused => {}
            Closed::Begun(writes) if writes.ended => return Completion::NotOurs,
            Closed::Begun(writes) => writes.commit(&mut self.rows()),
        }
        Completion::Committed
    }

    async fn rollback(&self, tx: &MemoryTx) -> Rollback {
        match tx.0.close() {
            Closed::Held => Rollback::Leaked,
            Closed::Begun(writes) if writes.ended => Rollback::NotOurs,
            Closed::Unused | Closed::Begun(_) => Rollback::RolledBack,
        }
    }

    async fn reclaim(&self, tx: &MemoryTx) -> Rollback {
        match tx.0.reclaim().await {
            Some(writes) if writes.ended => Rollback::NotOurs,
            Some(_) | None => Rollback::RolledBack,
        }
    }

    async fn resolve(&self, claim: &Claim) -> Result<Resolution, StoreError> {
        if self.remove(&claim.id, &claim.token) {
            return Ok(Resolution::Freed);
        }
        Ok(Resolution::of(claim, self.lookup(&claim.id).await?))
    }

    async fn free(&self, claim: &Claim) -> Result<bool, StoreError> {
        Ok(self.remove(&claim.id, &claim.token))
    }

    async fn renew(&self, claim: &Claim) -> Result<bool, StoreError> {
        Ok(self.change(claim, |row, now| row.stale_at = now + claim.stale_after))
    }

    async fn mark_unknown(&self, claim: &Claim) -> Result<bool, StoreError> {
        Ok(self.change(claim, |row, _| {
            row.complete(StoredResponse::outcome_unknown(), None)
        }))
    }

    async fn tombstone_resource(
        &self,
        tx: &MemoryTx,
        resource: &TombstoneResource,
    ) -> Result<u64, TxError> {
        let mut writes = tx.acquire(self).await?;
        let count = self
            .rows()
            .iter()
            .filter(|(id, row)| row.is_of(id, resource))
            .count();
        writes.buried.push(resource.clone());
        Ok(count as u64)
    }

    async fn lookup(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let now = self.clock.now();
        Ok(self.rows().get(id).map(|row| row.read(now)))
    }

    async fn release(&self, id: &RecordId, token: &ClaimToken) -> Result<bool, StoreError> {
        Ok(self.remove(id, token))
    }

    async fn erase_owner(&self, owner: &Owner) -> Result<u64, StoreError> {
        Ok(self.remove_where(usize::MAX, |id, _| id.owner == *owner))
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        let now = self.clock.now();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(self.remove_where(limit, |_, row| match &row.state {
            State::Claimed { .. } => row.stale_at + PURGE_STALE_AFTER <= now,
            State::Completed { expires_at, .. } => expires_at.is_some_and(|at| at <= now),
            State::Tombstone => false,
        }))
    }
}
