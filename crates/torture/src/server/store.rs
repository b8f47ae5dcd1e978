//! A store that delegates to another, and dies on the way.

use tower_idempotency::{
    Claim, ClaimOutcome, ClaimToken, Completion, Lease, Owner, Record, RecordId, Resolution,
    Rollback, Store, StoreError, StoredResponse, TombstoneResource, TxError,
};

use super::points::{Mine, Point};

#[derive(Clone)]
pub(crate) struct Mined<S> {
    inner: S,
    mine: Mine,
}

impl<S> Mined<S> {
    pub(crate) fn new(inner: S, mine: Mine) -> Self {
        Self { inner, mine }
    }
}

impl<S: Store> Store for Mined<S> {
    type Tx = S::Tx;

    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let outcome = self.inner.claim(claim).await?;
        if matches!(outcome, ClaimOutcome::Acquired { .. }) {
            self.mine.pass(Point::Claimed);
        }
        Ok(outcome)
    }

    fn lend(&self, lease: Lease) -> S::Tx {
        self.inner.lend(lease)
    }

    async fn complete(&self, tx: &S::Tx, claim: &Claim, response: &StoredResponse) -> Completion {
        self.mine.pass(Point::Completing);
        let completing = self.inner.complete(tx, claim, response);
        let completion = self.mine.amid(completing).await;
        if matches!(completion, Completion::Committed) {
            self.mine.pass(Point::Committed);
        }
        completion
    }

    async fn commit(&self, tx: &S::Tx) -> Completion {
        self.inner.commit(tx).await
    }

    async fn rollback(&self, tx: &S::Tx) -> Rollback {
        self.inner.rollback(tx).await
    }

    async fn reclaim(&self, tx: &S::Tx) -> Rollback {
        self.inner.reclaim(tx).await
    }

    async fn resolve(&self, claim: &Claim) -> Result<Resolution, StoreError> {
        self.inner.resolve(claim).await
    }

    async fn free(&self, claim: &Claim) -> Result<bool, StoreError> {
        self.mine.pass(Point::Freeing);
        self.inner.free(claim).await
    }

    async fn renew(&self, claim: &Claim) -> Result<bool, StoreError> {
        self.inner.renew(claim).await
    }

    async fn mark_unknown(&self, claim: &Claim) -> Result<bool, StoreError> {
        self.inner.mark_unknown(claim).await
    }

    async fn tombstone_resource(
        &self,
        tx: &S::Tx,
        resource: &TombstoneResource,
    ) -> Result<u64, TxError> {
        self.inner.tombstone_resource(tx, resource).await
    }

    async fn lookup(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.inner.lookup(id).await
    }

    async fn release(&self, id: &RecordId, token: &ClaimToken) -> Result<bool, StoreError> {
        self.inner.release(id, token).await
    }

    async fn erase_owner(&self, owner: &Owner) -> Result<u64, StoreError> {
        self.inner.erase_owner(owner).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.inner.purge(limit).await
    }
}
