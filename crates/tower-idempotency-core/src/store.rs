//! The contract of a store. `tower-idempotency-testsuite` has the tests that it must pass.

use std::future::Future;

use crate::error::{StoreError, TxError};
use crate::lease::Lease;
use crate::record::{Record, RecordState, StoredResponse};
use crate::resource::TombstoneResource;
use crate::{Claim, ClaimOutcome, ClaimToken, Owner, RecordId};

/// Keeps records, and lends the transactions in which they are completed.
///
/// All times are taken from the store's own clock. Every change of a claimed record names the
/// claim's token, so that an owner who was taken over changes nothing.
///
/// # Cancellation
///
/// Any future may be dropped at any await, after which the layer treats the step as one whose
/// outcome is unknown; it then frees the claim, so a store whose step goes on unattended must do
/// the freeing after it. A dropped [`complete`](Store::complete) must leave its transaction either
/// committed or sure to be rolled back, never open.
pub trait Store: Clone + Send + Sync + 'static {
    /// The transaction that goes into the request's extensions. Lending it opens nothing.
    type Tx: Clone + Send + Sync + 'static;

    /// Claims the record, in one short transaction of its own, committed when it returns.
    ///
    /// Where the record can be read, never waits longer than a fraction of a second for somebody
    /// else's uncommitted work. Where one transaction at a time writes, a new key waits for its
    /// turn to be written, a few seconds at the most, and is then unavailable.
    fn claim(&self, claim: &Claim)
    -> impl Future<Output = Result<ClaimOutcome, StoreError>> + Send;

    /// Makes the transaction that the handler may begin.
    fn lend(&self, lease: Lease) -> Self::Tx;

    /// Completes the claimed record and commits the handler's writes, both or neither.
    ///
    /// Where the handler never began its transaction, one statement of its own does.
    fn complete(
        &self,
        tx: &Self::Tx,
        claim: &Claim,
        response: &StoredResponse,
    ) -> impl Future<Output = Completion> + Send;

    /// Commits the writes of a request that has no record.
    fn commit(&self, tx: &Self::Tx) -> impl Future<Output = Completion> + Send;

    /// Rolls the handler's writes back, and returns when the database has done so.
    fn rollback(&self, tx: &Self::Tx) -> impl Future<Output = Rollback> + Send;

    /// After `Leaked`: waits until the last guard is gone, then rolls back.
    fn reclaim(&self, tx: &Self::Tx) -> impl Future<Output = Rollback> + Send;

    /// After [`Completion::Unknown`]: finds out whether this claim was completed.
    ///
    /// Deletes the record if it is still this claim's and claimed, which waits for a transaction
    /// in doubt; otherwise reads what is there. Only a completed record with this claim's token
    /// is proof.
    fn resolve(&self, claim: &Claim)
    -> impl Future<Output = Result<Resolution, StoreError>> + Send;

    /// Deletes the record if it is still this claim's and claimed. Says whether it was.
    fn free(&self, claim: &Claim) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Lets the claim live for another `stale_after`. Says whether it was still this claim's.
    fn renew(&self, claim: &Claim) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Marks the record as completed without result, its outcome unknown, if it is still this
    /// claim's and claimed. Says whether it was. Such a record never expires, whatever the ttl.
    fn mark_unknown(&self, claim: &Claim) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Buries every completed record of the owner and operation with that reference, within the
    /// handler's transaction. Returns their number.
    fn tombstone_resource(
        &self,
        tx: &Self::Tx,
        resource: &TombstoneResource,
    ) -> impl Future<Output = Result<u64, TxError>> + Send;

    /// Reads a record.
    fn lookup(
        &self,
        id: &RecordId,
    ) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// For operators: deletes a claimed record if it still bears the token that was looked up.
    ///
    /// Its request may still be running; it will then be rolled back. Says whether it was deleted.
    fn release(
        &self,
        id: &RecordId,
        token: &ClaimToken,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Deletes every record of an owner, whatever its state. Returns their number.
    ///
    /// A later retry of one of their keys is then a new request.
    fn erase_owner(&self, owner: &Owner) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Deletes at most `limit` records whose ttl is over or whose claim has been stale for 30
    /// days. Returns their number; fewer than `limit` means that no more could be just then.
    fn purge(&self, limit: u32) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// How completion ended. Only [`Committed`](Completion::Committed) may be answered with 2xx.
#[derive(Debug)]
pub enum Completion {
    /// The effect and the completed record are committed.
    Committed,
    /// Neither is, for certain.
    RolledBack(StoreError),
    /// The record is not this claim's any more; the handler's writes are rolled back, as far as
    /// the handler did not commit them itself.
    Lost,
    /// The record is still this claim's, but the transaction was ended by somebody else: some
    /// effect may be there.
    NotOurs,
    /// Somebody still holds the transaction. It is closed to all further use.
    Leaked,
    /// Nobody knows yet.
    Unknown(StoreError),
}

/// How a roll-back ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rollback {
    /// No write of the handler is there.
    RolledBack,
    /// The transaction was ended by somebody else: some effect may be there.
    NotOurs,
    /// Somebody still holds the transaction. It is closed to all further use.
    Leaked,
}

/// What became of a claim whose commit was in doubt.
#[derive(Debug)]
pub enum Resolution {
    /// It was committed, with this result.
    Committed(StoredResponse),
    /// It was not committed, and the key is free again.
    Freed,
    /// It was not committed, and there is somebody else's record.
    Other(Record),
    /// There is no record: it was taken over and freed, purged, or lost with a failover together
    /// with its effect.
    Absent,
}

impl Resolution {
    /// What the record says of a claim that was not found claimed: only a completed record with
    /// the claim's own token is proof of its commit.
    #[must_use]
    pub fn of(claim: &Claim, record: Option<Record>) -> Self {
        match record {
            None => Self::Absent,
            Some(Record {
                state:
                    RecordState::Completed {
                        token, response, ..
                    },
                ..
            }) if token == claim.token => Self::Committed(response),
            Some(record) => Self::Other(record),
        }
    }
}

/// What can become a store: so that a layer can be made of a connection pool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot become a store of idempotency records",
    note = "for a pool of sqlx's, switch on the feature `postgres`, `mysql` or `sqlite` of tower-idempotency",
    note = "for a store of your own, use `IdempotencyLayer::with_store`"
)]
pub trait IntoStore<S> {
    /// Makes the store.
    fn into_store(self) -> S;
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::StatusCode;

    use super::*;
    use crate::{Fingerprint, IdempotencyKey, Operation, Owner, RecordId};

    /// R62: nothing but a completed record with the claim's own token proves its commit.
    #[test]
    fn only_its_own_token_proves_a_commit() {
        let id = RecordId {
            owner: Owner::shared(),
            operation: Operation::from_static("publish"),
            key: IdempotencyKey::from_text("k").expect("a key"),
        };
        let fingerprint = Fingerprint::from_stored("hs1:");
        let claim = Claim::new(id, fingerprint.clone());
        let record = |state| Record {
            state,
            claimed_at: SystemTime::UNIX_EPOCH,
            resource_ref: None,
        };
        let completed = |token| {
            record(RecordState::Completed {
                token,
                fingerprint: fingerprint.clone(),
                response: StoredResponse::not_kept(StatusCode::CREATED),
                expired: false,
            })
        };
        let claimed = record(RecordState::Claimed {
            token: claim.token,
            fingerprint: fingerprint.clone(),
            stale: false,
        });
        let of = |record| Resolution::of(&claim, record);
        assert!(matches!(of(None), Resolution::Absent));
        let mine = of(Some(completed(claim.token)));
        assert!(matches!(mine, Resolution::Committed(_)));
        let theirs = of(Some(completed(ClaimToken::from_bytes([7; 16]))));
        assert!(matches!(theirs, Resolution::Other(_)));
        assert!(matches!(of(Some(claimed)), Resolution::Other(_)));
    }
}
