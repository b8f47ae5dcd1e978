//! The request's transaction, from the handler's side.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

use axum_core::extract::FromRequestParts;
use http::request::Parts;
use tokio::sync::OwnedSemaphorePermit;
use tower_idempotency_core::{
    ClaimToken, Problem, ProblemKind, ResourceRef, TombstoneResource, TxError, TxGuard, TxSlot,
};

use crate::dialect::Dialect;
use crate::error::store_error;
use crate::leash::Leash;
use crate::queries;
use crate::store::SqlxStore;

/// The transaction of a request, an extractor.
///
/// It is opened at the first [`acquire`](Tx::acquire), so a handler that does slow work first holds
/// no connection meanwhile. The layer commits it together with the record's completion when the
/// handler answers 2xx, and rolls it back otherwise: on any other status, a panic, or a claim that
/// was taken over. Handlers must not end it themselves.
///
/// Cheap to clone; clones are one transaction.
pub struct Tx<DB: Dialect> {
    pub(crate) slot: TxSlot<Open<DB>>,
    store: SqlxStore<DB>,
}

/// An open transaction.
pub(crate) struct Open<DB: Dialect> {
    pub(crate) leash: Leash<DB>,
    // Dropped after the transaction.
    _writer: Option<OwnedSemaphorePermit>,
}

/// The connection of a request's transaction, lent by [`Tx::acquire`].
///
/// `&mut *conn` is an executor. Dropping it gives the connection back to the request, not to the
/// pool; it must not outlive the handler's answer.
pub struct TxConnection<DB: Dialect>(TxGuard<Open<DB>>);

impl<DB: Dialect> Tx<DB> {
    pub(crate) fn new(store: SqlxStore<DB>, slot: TxSlot<Open<DB>>) -> Self {
        Self { slot, store }
    }

    /// Lends the transaction's connection, beginning the transaction on first use.
    ///
    /// # Errors
    ///
    /// When an earlier connection of this request is still held ([`TxError::is_held`]), when the
    /// request has been answered, when its claim was taken over, or when the database is
    /// unreachable or busy. The error is a response, so `?` does what is right.
    ///
    /// # Cancellation
    ///
    /// Safe: what was begun in vain is rolled back.
    pub async fn acquire(&self) -> Result<TxConnection<DB>, TxError> {
        let open = || self.slot.lease().begin(&self.store, self.open());
        self.slot.acquire(open).await.map(TxConnection)
    }

    async fn open(&self) -> Result<Open<DB>, TxError> {
        let lease = self.slot.lease();
        let started = Instant::now();
        let claimed = lease.claim().is_some();
        let token = lease
            .claim()
            .map_or_else(ClaimToken::random, |claim| claim.token);
        let writer = self.store.writer().await?;
        let (pool, sending) = (self.store.pool().clone(), self.store.sending);
        // In a task that nothing cancels: a cancelled BEGIN would give the connection back to the
        // pool inside of an open transaction (sqlx issues 4385 and 4393).
        let begun = tokio::spawn(async move {
            let leash = Leash::begin(&pool, sending, &token, claimed).await?;
            Ok(Open {
                leash,
                _writer: writer,
            })
        });
        let open = begun
            .await
            .unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed))
            .map_err(store_error::<DB>)?;
        lease.record_begin(started.elapsed());
        Ok(open)
    }

    /// Notes what this request made, so that deleting it can bury the record. The last one counts.
    pub fn made(&self, resource_ref: ResourceRef) {
        self.slot.lease().made(resource_ref);
    }

    /// Buries every completed record of that owner and operation which made that resource: later
    /// arrivals of their keys are answered 410, whatever their body. In this transaction, so it
    /// happens if and only if the deletion does.
    ///
    /// Returns how many records were buried. None is worth a look, and a line in the log: either
    /// nobody called [`made`](Tx::made), or owner, operation or reference differ.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Tx::acquire): a connection that the handler still holds must be dropped
    /// first.
    pub async fn tombstone_resource(&self, resource: TombstoneResource) -> Result<u64, TxError> {
        let mut conn = self.acquire().await?;
        let buried = queries::tombstone::<DB>(&mut conn, self.store.sending, &resource)
            .await
            .map_err(store_error::<DB>)?;
        if buried == 0 {
            tracing::warn!(
                operation = resource.operation.as_str(),
                "no record was buried: did that operation call `tx.made(..)` with this reference, for this owner?"
            );
        }
        Ok(buried)
    }
}

impl<DB: Dialect> Deref for TxConnection<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.0.leash
    }
}

impl<DB: Dialect> DerefMut for TxConnection<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.0.leash
    }
}

impl<DB: Dialect> Clone for Tx<DB> {
    fn clone(&self) -> Self {
        Self {
            slot: self.slot.clone(),
            store: self.store.clone(),
        }
    }
}

impl<DB: Dialect> fmt::Debug for Tx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx")
            .field("database", &DB::NAME)
            .finish_non_exhaustive()
    }
}

impl<DB: Dialect> fmt::Debug for TxConnection<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxConnection")
            .field("database", &DB::NAME)
            .finish_non_exhaustive()
    }
}

/// Rejects with the problem `layer-missing` where no layer over a pool of that database is around
/// the handler.
impl<DB: Dialect, S: Sync> FromRequestParts<S> for Tx<DB> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().cloned().ok_or_else(|| {
            tracing::error!(
                database = DB::NAME,
                "no transaction: add `.layer(IdempotencyLayer::new(pool))` to the route or router"
            );
            ProblemKind::LayerMissing.into()
        })
    }
}
