//! The request's transaction.

use std::ops::Deref;
use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use redb::{CommitError, WriteTransaction};
use tokio::sync::OwnedSemaphorePermit;
use tower_idempotency::{
    Problem, ProblemKind, ResourceRef, TombstoneResource, TxError, TxGuard, TxSlot,
};

use crate::database::RedbStore;
use crate::records::Records;

/// The one turn to write there is, with its transaction.
pub(crate) struct Turn {
    pub(crate) transaction: WriteTransaction,
    // Dropped after the transaction, or the next in line would block a thread.
    _permit: OwnedSemaphorePermit,
}

impl Turn {
    pub(crate) fn new(transaction: WriteTransaction, permit: OwnedSemaphorePermit) -> Self {
        Self {
            transaction,
            _permit: permit,
        }
    }

    pub(crate) fn commit(self) -> Result<(), CommitError> {
        self.transaction.commit()
    }
}

/// The transaction of a request, an extractor. Begun on first use, committed by the layer on 2xx
/// together with the record, rolled back otherwise.
///
/// Cheap to clone; clones are one transaction.
#[derive(Clone, Debug)]
pub struct RedbTx {
    /// `None` where it was ended by hand.
    pub(crate) slot: TxSlot<Option<Turn>>,
    pub(crate) store: RedbStore,
}

impl RedbTx {
    /// Lends the transaction, beginning it on first use. From then on nobody else writes.
    ///
    /// # Errors
    ///
    /// When an earlier guard is still alive, when the request has been answered, when its claim was
    /// taken over, or when others write for too long.
    ///
    /// # Cancellation
    ///
    /// Safe: what was begun in vain is rolled back.
    pub async fn acquire(&self) -> Result<Writer, TxError> {
        let open = || self.slot.lease().begin(&self.store, self.open());
        let turn = self.slot.acquire(open).await?;
        if turn.is_none() {
            return Err(TxError::refused("it was ended by hand"));
        }
        Ok(Writer(turn))
    }

    async fn open(&self) -> Result<Option<Turn>, TxError> {
        let started = Instant::now();
        let turn = self.store.begin().await?;
        self.slot.lease().record_begin(started.elapsed());
        Ok(Some(turn))
    }

    /// Notes what this request made, so that deleting it can bury the record.
    pub fn made(&self, resource_ref: ResourceRef) {
        self.slot.lease().made(resource_ref);
    }

    /// Buries every completed record of that owner and operation which made that resource, in this
    /// transaction. Returns their number.
    ///
    /// # Errors
    ///
    /// As [`acquire`](RedbTx::acquire).
    pub async fn tombstone_resource(&self, resource: &TombstoneResource) -> Result<u64, TxError> {
        let writer = self.acquire().await?;
        let mut records = Records::within(&writer, self.store.now())?;
        Ok(records.bury(resource)?)
    }
}

/// The transaction, lent by [`RedbTx::acquire`]: open tables on it. It must not outlive the handler's
/// answer.
#[derive(Debug)]
pub struct Writer(TxGuard<Option<Turn>>);

impl Writer {
    /// Does what a handler must not do, and what redb alone would not let it do: commits by itself.
    /// For tests of what the layer makes of that.
    ///
    /// # Errors
    ///
    /// When the commit fails.
    pub fn commit_by_hand(mut self) -> Result<(), CommitError> {
        self.0.take().map_or(Ok(()), Turn::commit)
    }
}

impl Deref for Writer {
    type Target = WriteTransaction;

    fn deref(&self) -> &WriteTransaction {
        let turn = self.0.as_ref();
        &turn.expect("only an open transaction is lent").transaction
    }
}

/// Rejects with the problem `layer-missing` where no layer over a [`RedbStore`] is around the
/// handler.
impl<S: Sync> FromRequestParts<S> for RedbTx {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let tx = parts.extensions.get().cloned();
        tx.ok_or_else(|| ProblemKind::LayerMissing.into())
    }
}
