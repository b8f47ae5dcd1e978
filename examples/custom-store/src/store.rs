//! The contract of stores, kept by this one.

use redb::CommitError;
use tower_idempotency::{
    Claim, ClaimOutcome, ClaimToken, Closed, Completion, Decision, Lease, Owner, Record, RecordId,
    Resolution, Rollback, Store, StoreError, StoredResponse, TombstoneResource, TxError, TxSlot,
};

use crate::database::{CLAIM_PATIENCE, RedbStore, WRITER_PATIENCE, blocking, failed};
use crate::record::{RECORDS, decode, key};
use crate::records::{Records, over};
use crate::tx::{RedbTx, Turn};

impl RedbStore {
    /// The handler ended its transaction by hand, so that some effect may be there: only a record
    /// that is certainly somebody else's is lost.
    async fn ended_by_hand(&self, claim: &Claim) -> Completion {
        match self.lookup(&claim.id).await {
            Ok(record) if record.as_ref().and_then(Record::token) != Some(claim.token) => {
                Completion::Lost
            }
            Ok(_) | Err(_) => Completion::NotOurs,
        }
    }
}

fn committed(ended: Result<(), CommitError>) -> Completion {
    match ended {
        Ok(()) => Completion::Committed,
        // A panic in the middle of a change: redb has not even tried.
        Err(error @ CommitError::TransactionPoisoned) => Completion::RolledBack(failed(error)),
        Err(error) => Completion::Unknown(failed(error)),
    }
}

/// Completes the record within the handler's transaction. While that is open nobody else writes, so
/// what the fence has found holds until the commit.
fn complete(turn: Turn, now: u64, claim: &Claim, response: &StoredResponse) -> Completion {
    let completed = Records::within(&turn.transaction, now)
        .and_then(|mut records| records.complete(claim, claim.ttl, response));
    match completed {
        Ok(true) => committed(turn.commit()),
        Ok(false) => Completion::Lost,
        Err(error) => Completion::RolledBack(error),
    }
}

/// Rolls back, which is what dropping a turn does.
async fn roll_back(turn: Option<Turn>) -> Rollback {
    let Some(turn) = turn else {
        return Rollback::NotOurs;
    };
    let _ = blocking(move || drop(turn)).await;
    Rollback::RolledBack
}

impl Store for RedbStore {
    type Tx = RedbTx;

    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        // Where the record answers, nobody has to wait for a turn to write.
        if let Some(record) = self.lookup(&claim.id).await?
            && let Decision::Answer(outcome) = record.decide(&claim.fingerprint)
        {
            return Ok(outcome);
        }
        let claim = claim.clone();
        let claiming = move |records: &mut Records<'_>| {
            let taken_over = match records.find(&claim.id)? {
                None => false,
                Some(record) => match record.decide(&claim.fingerprint) {
                    Decision::Answer(outcome) => return Ok(outcome),
                    Decision::Replace { stale, .. } => stale,
                },
            };
            records.claim(&claim)?;
            Ok(ClaimOutcome::Acquired { taken_over })
        };
        self.change(CLAIM_PATIENCE, claiming).await
    }

    fn lend(&self, lease: Lease) -> RedbTx {
        RedbTx {
            slot: TxSlot::new(lease),
            store: self.clone(),
        }
    }

    async fn complete(&self, tx: &RedbTx, claim: &Claim, response: &StoredResponse) -> Completion {
        let turn = match tx.slot.close() {
            Closed::Held => return Completion::Leaked,
            Closed::Begun(None) => return self.ended_by_hand(claim).await,
            Closed::Begun(Some(turn)) => turn,
            Closed::Unused => match self.begin().await {
                Ok(turn) => turn,
                Err(error) => return Completion::RolledBack(error),
            },
        };
        let (now, claim, response) = (self.now(), claim.clone(), response.clone());
        let completing = blocking(move || complete(turn, now, &claim, &response));
        completing.await.unwrap_or_else(Completion::Unknown)
    }

    async fn commit(&self, tx: &RedbTx) -> Completion {
        let turn = match tx.slot.close() {
            Closed::Held => return Completion::Leaked,
            Closed::Unused => return Completion::Committed,
            Closed::Begun(None) => return Completion::NotOurs,
            Closed::Begun(Some(turn)) => turn,
        };
        let committing = blocking(move || committed(turn.commit()));
        committing.await.unwrap_or_else(Completion::Unknown)
    }

    async fn rollback(&self, tx: &RedbTx) -> Rollback {
        match tx.slot.close() {
            Closed::Held => Rollback::Leaked,
            Closed::Unused => Rollback::RolledBack,
            Closed::Begun(turn) => roll_back(turn).await,
        }
    }

    async fn reclaim(&self, tx: &RedbTx) -> Rollback {
        match tx.slot.reclaim().await {
            None => Rollback::RolledBack,
            Some(turn) => roll_back(turn).await,
        }
    }

    /// In line behind a commit in doubt, so that what is found is what became of it.
    async fn resolve(&self, claim: &Claim) -> Result<Resolution, StoreError> {
        let claim = claim.clone();
        let resolving = move |records: &mut Records<'_>| {
            if records.remove(&claim.id, &claim.token)? {
                return Ok(Resolution::Freed);
            }
            Ok(Resolution::of(&claim, records.find(&claim.id)?))
        };
        self.change(WRITER_PATIENCE, resolving).await
    }

    async fn free(&self, claim: &Claim) -> Result<bool, StoreError> {
        self.release(&claim.id, &claim.token).await
    }

    async fn renew(&self, claim: &Claim) -> Result<bool, StoreError> {
        let claim = claim.clone();
        let renewing = move |records: &mut Records<'_>| records.renew(&claim);
        self.change(WRITER_PATIENCE, renewing).await
    }

    async fn mark_unknown(&self, claim: &Claim) -> Result<bool, StoreError> {
        let claim = claim.clone();
        let unknown = StoredResponse::outcome_unknown();
        let marking = move |records: &mut Records<'_>| records.complete(&claim, None, &unknown);
        self.change(WRITER_PATIENCE, marking).await
    }

    async fn tombstone_resource(
        &self,
        tx: &RedbTx,
        resource: &TombstoneResource,
    ) -> Result<u64, TxError> {
        tx.tombstone_resource(resource).await
    }

    async fn lookup(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let (id, now) = (id.clone(), self.now());
        let reading = self.read(move |transaction| {
            let row = transaction.open_table(RECORDS)?.get(key(&id))?;
            Ok(row.map(|row| decode(row.value(), now)))
        });
        reading.await?.transpose()
    }

    async fn release(&self, id: &RecordId, token: &ClaimToken) -> Result<bool, StoreError> {
        let (id, token) = (id.clone(), *token);
        let removing = move |records: &mut Records<'_>| records.remove(&id, &token);
        self.change(WRITER_PATIENCE, removing).await
    }

    async fn erase_owner(&self, owner: &Owner) -> Result<u64, StoreError> {
        let owner = owner.clone();
        let erasing = move |records: &mut Records<'_>| records.erase(&owner);
        self.change(WRITER_PATIENCE, erasing).await
    }

    /// Looks at every record, as a reader whom nobody waits for: an index by expiry would pay where
    /// there are very many.
    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut purged = 0;
        // Some may have been replaced since they were found; then there may be more.
        while left > 0 {
            let now = self.now();
            let keys = self.read(move |transaction| over(transaction, now, left));
            let keys = keys.await?;
            let last = keys.len() < left;
            let purging = move |records: &mut Records<'_>| records.purge(&keys);
            let deleted = self.change(WRITER_PATIENCE, purging).await?;
            purged += deleted;
            left = left.saturating_sub(usize::try_from(deleted).unwrap_or(usize::MAX));
            if last {
                break;
            }
        }
        Ok(purged)
    }
}
