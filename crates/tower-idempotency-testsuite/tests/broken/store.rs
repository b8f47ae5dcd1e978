//! A store that keeps the contract, but for one flaw.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tower_idempotency_core::{
    Claim, ClaimOutcome, ClaimToken, Closed, Completion, Decision, Lease, Owner, Record, RecordId,
    Resolution, Rollback, Store, StoreError, StoredResponse, TombstoneResource, TxError,
};

use crate::flaw::Flaw;
use crate::rows::{Data, Row, State, place};
use crate::tx::FlawedTx;

#[derive(Clone)]
pub(crate) struct FlawedStore {
    pub(crate) flaw: Flaw,
    handle: usize,
    /// Whether a dropped claim has left this handle's connection in an open transaction.
    poisoned: Arc<AtomicBool>,
    clock: Arc<Clock>,
    data: Arc<Mutex<Data>>,
}

struct Clock {
    started: Instant,
    moved_ms: AtomicU64,
}

impl FlawedStore {
    pub(crate) fn new(flaw: Flaw) -> Self {
        let clock = Clock {
            started: Instant::now(),
            moved_ms: AtomicU64::new(0),
        };
        Self {
            flaw,
            handle: 0,
            poisoned: Arc::default(),
            clock: Arc::new(clock),
            data: Arc::default(),
        }
    }

    pub(crate) fn second(&self) -> Self {
        Self {
            handle: self.handle + 1,
            poisoned: Arc::default(),
            ..self.clone()
        }
    }

    pub(crate) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.clock.moved_ms.fetch_add(by, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> Duration {
        let moved = self.clock.moved_ms.load(Ordering::SeqCst);
        self.clock.started.elapsed() + Duration::from_millis(moved)
    }

    pub(crate) fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn read(&self, id: &RecordId) -> Option<Record> {
        let now = self.now();
        let data = self.data();
        let row = data.visible(&place(id, self.flaw), self.handle)?;
        Some(row.read(now, self.flaw))
    }

    async fn wait_for_transaction(&self, id: &RecordId) {
        let place = place(id, self.flaw);
        while self.data().open.contains(&place) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn end(&self, tx: &FlawedTx) {
        if let Some(claim) = tx.slot().lease().claim() {
            let place = place(&claim.id, self.flaw);
            self.data().open.retain(|open| *open != place);
        }
    }
}

impl Store for FlawedStore {
    type Tx = FlawedTx;

    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let place = place(&claim.id, self.flaw);
        if self.is(Flaw::ClaimWaitsForTransaction) {
            self.wait_for_transaction(&claim.id).await;
        }
        let was_poisoned = self.poisoned.swap(true, Ordering::SeqCst);
        loop {
            let until = self.data().rows.get(&place).map(|row| row.stale_at);
            let seen = match self.read(&claim.id) {
                None => None,
                Some(record) => {
                    let decision = self.tombstone(claim);
                    match decision.unwrap_or_else(|| self.decide(&record, claim)) {
                        Decision::Answer(outcome) => {
                            self.poisoned.store(was_poisoned, Ordering::SeqCst);
                            return Ok(outcome);
                        }
                        Decision::Replace { seen, stale } => Some((seen, stale)),
                    }
                }
            };
            // Lets another arrival in: nothing that was read before may be believed after.
            tokio::task::yield_now().await;
            let now = self.now();
            let mut data = self.data();
            let found = data.visible(&place, self.handle);
            let fenced = match seen {
                None => found.is_none() || self.is(Flaw::InsertUnfenced),
                // A completed record keeps its token: the token alone is no fence.
                Some((seen, stale)) => {
                    self.is(Flaw::ReplaceUnfenced)
                        || found.is_some_and(|row| {
                            let same = (row.state == State::Claimed) == stale;
                            row.token == seen
                                && (same || self.is(Flaw::ReplaceIgnoresState))
                                && (until == Some(row.stale_at)
                                    || self.is(Flaw::ReplaceIgnoresRenewal))
                        })
                }
            };
            if !fenced {
                continue;
            }
            let mut row = Row::claimed(claim, now);
            let poisoned = was_poisoned && self.is(Flaw::DroppedClaimPoisons);
            if poisoned || self.is(Flaw::ClaimSeenByOneHandle) {
                row.only = Some(self.handle);
            }
            if self.is(Flaw::StaleEarly) {
                row.stale_at = now + claim.stale_after / 2;
            }
            if self.is(Flaw::TtlFromClaim) {
                row.expires_at = claim.ttl.map(|ttl| now + ttl);
            }
            data.rows.insert(place, row);
            self.poisoned.store(was_poisoned, Ordering::SeqCst);
            if self.is(Flaw::BusyButClaimed) && !data.open.is_empty() {
                return Err(StoreError::unavailable("busy"));
            }
            let taken_over = seen.is_some_and(|(_, stale)| stale);
            return Ok(ClaimOutcome::Acquired { taken_over });
        }
    }

    fn lend(&self, lease: Lease) -> FlawedTx {
        let lent = match &lease {
            _ if !self.is(Flaw::RefusedIsLent) => lease,
            lease => lease
                .claim()
                .map_or_else(Lease::unclaimed, |claim| Lease::claimed(claim.clone())),
        };
        FlawedTx::new(lent)
    }

    async fn complete(
        &self,
        tx: &FlawedTx,
        claim: &Claim,
        response: &StoredResponse,
    ) -> Completion {
        let pending = if self.is(Flaw::CompletionWaitsForGuard) {
            tx.slot().reclaim().await
        } else {
            match tx.close() {
                Closed::Held => return Completion::Leaked,
                Closed::Unused => None,
                Closed::Begun(pending) => Some(pending),
            }
        };
        self.end(tx);
        if pending.is_none() && self.is(Flaw::BareCompletionForgotten) {
            return Completion::Committed;
        }
        let place = place(&claim.id, self.flaw);
        if let (Flaw::WritesBeforeRecord, Some(pending)) = (self.flaw, &pending) {
            self.data().add_effects(&pending.writes);
        }
        // A completion under way, as everybody sees it: the record is still claimed.
        let hidden = self
            .is(Flaw::CompletionFreesFirst)
            .then(|| self.data().rows.remove(&place));
        tokio::task::yield_now().await;
        let now = self.now();
        let mut data = self.data();
        if let Some(Some(row)) = hidden {
            data.rows.entry(place.clone()).or_insert(row);
        }
        if self.is(Flaw::CompletionUpserts) {
            data.rows
                .entry(place.clone())
                .or_insert_with(|| Row::claimed(claim, now));
        }
        let completes = data
            .rows
            .get(&place)
            .is_some_and(|row| self.completes(row, claim, pending.as_ref()));
        let pending = pending.unwrap_or_default();
        if !completes {
            if self.is(Flaw::LostCommitsWrites) {
                data.add_effects(&pending.writes);
            }
            return Completion::Lost;
        }
        if pending.ended && !self.is(Flaw::EndUnseen) {
            return Completion::NotOurs;
        }
        if !self.is(Flaw::BuriesItself) {
            data.bury(&pending.buried, self.flaw);
        }
        if let Some(row) = data.rows.get_mut(&place) {
            row.only = None;
            if !self.is(Flaw::TtlFromClaim) {
                row.expires_at = claim.ttl.map(|ttl| now + ttl);
            }
            row.complete(response, now, self.flaw);
        }
        if self.is(Flaw::BuriesItself) {
            data.bury(&pending.buried, self.flaw);
        }
        if !self.is(Flaw::WritesBeforeRecord) {
            data.add_effects(&pending.writes);
        }
        Completion::Committed
    }

    async fn commit(&self, tx: &FlawedTx) -> Completion {
        let pending = match tx.close() {
            Closed::Held => return Completion::Leaked,
            Closed::Unused if self.is(Flaw::UnclaimedNeedsTransaction) => {
                return Completion::RolledBack(StoreError::other("there is no transaction"));
            }
            Closed::Unused => return Completion::Committed,
            Closed::Begun(pending) => pending,
        };
        if pending.ended && !self.is(Flaw::UnclaimedEndUnseen) {
            return Completion::NotOurs;
        }
        let mut data = self.data();
        if !self.is(Flaw::UnclaimedBuriesNothing) {
            data.bury(&pending.buried, self.flaw);
        }
        if !self.is(Flaw::UnclaimedForgotten) {
            data.add_effects(&pending.writes);
        }
        Completion::Committed
    }

    async fn rollback(&self, tx: &FlawedTx) -> Rollback {
        let pending = match tx.close() {
            Closed::Held if self.is(Flaw::RollbackIgnoresGuard) => return Rollback::RolledBack,
            Closed::Held => return Rollback::Leaked,
            Closed::Unused if self.is(Flaw::BareRollbackNotOurs) => return Rollback::NotOurs,
            Closed::Unused => return Rollback::RolledBack,
            Closed::Begun(pending) => pending,
        };
        self.end(tx);
        let unclaimed = tx.slot().lease().claim().is_none();
        if self.is(Flaw::RollbackKeepsWrites)
            || unclaimed && self.is(Flaw::UnclaimedRollbackKeepsWrites)
        {
            self.data().add_effects(&pending.writes);
        }
        if pending.ended && !self.is(Flaw::EndUnseenByRollback) {
            return Rollback::NotOurs;
        }
        Rollback::RolledBack
    }

    async fn reclaim(&self, tx: &FlawedTx) -> Rollback {
        let pending = tx.slot().reclaim().await;
        self.end(tx);
        match pending {
            Some(pending) if pending.ended => Rollback::NotOurs,
            Some(_) | None => Rollback::RolledBack,
        }
    }

    async fn resolve(&self, claim: &Claim) -> Result<Resolution, StoreError> {
        let place = place(&claim.id, self.flaw);
        if self.is(Flaw::ResolvingFreesCompleted) {
            self.data().rows.retain(|_, row| row.token != claim.token);
        }
        if !self.is(Flaw::ResolvingLeavesClaim)
            && self.remove(&claim.id, &claim.token, Flaw::ResolvingUnfenced)
        {
            return Ok(Resolution::Freed);
        }
        if self.is(Flaw::AnyCompletionIsProof)
            && let Some(Row {
                state: State::Completed,
                response: Some(response),
                ..
            }) = self.data().rows.get(&place)
        {
            return Ok(Resolution::Committed(response.clone()));
        }
        match Resolution::of(claim, self.read(&claim.id)) {
            Resolution::Absent if self.is(Flaw::AbsentIsFreed) => Ok(Resolution::Freed),
            resolution => Ok(resolution),
        }
    }

    async fn free(&self, claim: &Claim) -> Result<bool, StoreError> {
        if self.is(Flaw::FreeingKeepsRecord) {
            return Ok(
                self.change(&claim.id, &claim.token, Flaw::None, |data, now| {
                    if let Some(row) = data.rows.get_mut(&place(&claim.id, self.flaw)) {
                        row.stale_at = now;
                    }
                }),
            );
        }
        Ok(self.remove(&claim.id, &claim.token, Flaw::FreeingUnfenced))
    }

    async fn renew(&self, claim: &Claim) -> Result<bool, StoreError> {
        let renewed = self.change(
            &claim.id,
            &claim.token,
            Flaw::RenewalUnfenced,
            |data, now| match data.rows.get_mut(&place(&claim.id, self.flaw)) {
                Some(row) if !self.is(Flaw::RenewalDoesNothing) => {
                    row.stale_at = now + claim.stale_after;
                }
                _ => {}
            },
        );
        Ok(renewed || self.is(Flaw::RenewalAlwaysDone))
    }

    async fn mark_unknown(&self, claim: &Claim) -> Result<bool, StoreError> {
        let place = place(&claim.id, self.flaw);
        Ok(self.change(
            &claim.id,
            &claim.token,
            Flaw::MarkingUnfenced,
            |data, now| {
                if self.is(Flaw::MarkingFrees) {
                    data.rows.remove(&place);
                } else if let Some(row) = data.rows.get_mut(&place) {
                    row.expires_at = match claim.ttl {
                        Some(ttl) if self.is(Flaw::UnknownExpires) => Some(now + ttl),
                        _ => None,
                    };
                    row.complete(&StoredResponse::outcome_unknown(), now, self.flaw);
                }
            },
        ))
    }

    async fn tombstone_resource(
        &self,
        tx: &FlawedTx,
        resource: &TombstoneResource,
    ) -> Result<u64, TxError> {
        let mut pending = tx.acquire(self).await?;
        let mut data = self.data();
        let buried = data
            .rows
            .values()
            .filter(|row| row.is_of(resource, self.flaw));
        let mut count = buried.count();
        if self.is(Flaw::BuriesOne) {
            count = count.min(1);
        }
        if self.is(Flaw::BuriesAtOnce) {
            data.bury(std::slice::from_ref(resource), self.flaw);
        } else {
            pending.buried.push(resource.clone());
        }
        Ok(count as u64)
    }

    async fn lookup(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        if self.is(Flaw::LookupFolded) {
            let now = self.now();
            let data = self.data();
            let folded = place(id, Flaw::KeysFolded);
            let found = data
                .rows
                .values()
                .find(|row| place(&row.id, Flaw::KeysFolded) == folded);
            return Ok(found.map(|row| row.read(now, self.flaw)));
        }
        Ok(self.read(id))
    }

    async fn release(&self, id: &RecordId, token: &ClaimToken) -> Result<bool, StoreError> {
        Ok(self.remove(id, token, Flaw::ReleaseUnfenced))
    }

    async fn erase_owner(&self, owner: &Owner) -> Result<u64, StoreError> {
        let mut data = self.data();
        let before = data.rows.len();
        data.rows.retain(|_, row| match self.flaw {
            Flaw::ErasesByPrefix => !row.id.owner.as_str().starts_with(owner.as_str()),
            Flaw::ErasesCompletedOnly => row.id.owner != *owner || row.state != State::Completed,
            _ => row.id.owner != *owner,
        });
        Ok((before - data.rows.len()) as u64)
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        const LONG_STALE: Duration = Duration::from_secs(30 * 24 * 3600);

        if self.is(Flaw::PurgeDoesNothing) {
            return Ok(0);
        }
        let now = self.now();
        let doomed = |row: &Row| match row.state {
            State::Claimed => match self.flaw {
                Flaw::PurgeLeavesClaims => false,
                Flaw::PurgesLiveClaims => true,
                Flaw::PurgesByClaimedAt => row.claimed_at + LONG_STALE <= now,
                _ => row.stale_at + LONG_STALE <= now,
            },
            State::Completed => row.expired(now, self.flaw),
            State::Tombstone => self.is(Flaw::PurgesTombstones),
        };
        let result = |row: &Row| row.state == State::Completed && doomed(row);
        let results = self.data().rows.values().any(result);
        let limit = match self.flaw {
            Flaw::PurgeUnlimited => usize::MAX,
            Flaw::PurgesAllClaims if !results => usize::MAX,
            _ => usize::try_from(limit).unwrap_or(usize::MAX),
        };
        let found: Vec<_> = {
            let data = self.data();
            let found = data.rows.iter().filter(|(_, row)| doomed(row));
            found.map(|(place, _)| place.clone()).take(limit).collect()
        };
        // Lets a replacement in between the search and the deletion.
        tokio::task::yield_now().await;
        let mut data = self.data();
        let mut purged = 0;
        for place in found {
            let still = data.rows.get(&place).is_some_and(doomed);
            if still || self.is(Flaw::PurgesReplaced) {
                purged += u64::from(data.rows.remove(&place).is_some());
            }
        }
        Ok(purged)
    }
}
