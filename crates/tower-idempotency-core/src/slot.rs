//! Where a request's transaction lives between the handler and the store.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::TxError;
use crate::lease::Lease;

/// Holds the transaction of a request: opened on first use, used by one at a time, ended by the
/// store. For implementors of [`Store`](crate::Store); clones are one slot.
pub struct TxSlot<T>(Arc<Inner<T>>);

struct Inner<T> {
    lease: Lease,
    // Set before the lock is tried, so that nobody begins anew what was ended.
    closed: AtomicBool,
    transaction: Arc<Mutex<Option<T>>>,
}

/// What was in a slot when it was closed.
#[derive(Debug)]
pub enum Closed<T> {
    /// The transaction was never begun.
    Unused,
    /// The transaction, begun and in nobody's hands.
    Begun(T),
    /// Somebody still holds a guard: see [`TxSlot::reclaim`].
    Held,
}

/// Lends the transaction to one user at a time. Dropping it gives the transaction back to the
/// request; only the layer ends it.
pub struct TxGuard<T>(OwnedMutexGuard<Option<T>>);

impl<T> TxSlot<T> {
    /// Makes an empty slot.
    #[must_use]
    pub fn new(lease: Lease) -> Self {
        let transaction = Arc::new(Mutex::new(None));
        Self(Arc::new(Inner {
            lease,
            closed: AtomicBool::new(false),
            transaction,
        }))
    }

    /// The lease of the request.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.0.lease
    }

    /// Lends the transaction, opening it on first use.
    ///
    /// # Errors
    ///
    /// When an earlier guard is still alive, when the request has been answered, or when `open`
    /// fails; the next call then tries anew.
    ///
    /// # Cancellation
    ///
    /// Safe where `open` is.
    pub async fn acquire<F>(&self, open: impl FnOnce() -> F) -> Result<TxGuard<T>, TxError>
    where
        F: Future<Output = Result<T, TxError>>,
    {
        self.lease().using();
        let guard = Arc::clone(&self.0.transaction).try_lock_owned();
        if self.0.closed.load(Ordering::SeqCst) {
            return Err(TxError::closed());
        }
        let mut guard = guard.map_err(|_| TxError::held())?;
        if guard.is_none() {
            *guard = Some(open().await?);
        }
        Ok(TxGuard(guard))
    }

    /// Closes the slot for good and takes the transaction out, unless somebody holds it.
    #[must_use]
    pub fn close(&self) -> Closed<T> {
        self.0.closed.store(true, Ordering::SeqCst);
        match self.0.transaction.try_lock() {
            Ok(mut transaction) => transaction.take().map_or(Closed::Unused, Closed::Begun),
            Err(_) => Closed::Held,
        }
    }

    /// Waits until nobody holds the transaction any more, and takes it out.
    pub async fn reclaim(&self) -> Option<T> {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.transaction.lock().await.take()
    }
}

impl<T> Clone for TxSlot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for TxSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxSlot")
            .field("lease", &self.0.lease)
            .finish_non_exhaustive()
    }
}

impl<T> Deref for TxGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
            .as_ref()
            .expect("a guard is made of an open transaction")
    }
}

impl<T> DerefMut for TxGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0
            .as_mut()
            .expect("a guard is made of an open transaction")
    }
}

impl<T> fmt::Debug for TxGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TxGuard(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R63: what somebody holds is taken out when the last guard is dropped, and not begun anew.
    #[tokio::test]
    async fn a_leaked_transaction_is_reclaimed() {
        let slot = TxSlot::new(Lease::unclaimed());
        let guard = slot.acquire(async || Ok(5)).await.expect("it opens");
        assert!(matches!(slot.close(), Closed::Held));
        let (reclaimed, ()) = tokio::join!(slot.reclaim(), async { drop(guard) });
        assert_eq!(reclaimed, Some(5));
        assert_eq!(slot.reclaim().await, None);
        assert!(slot.acquire(async || Ok(6)).await.is_err());
    }
}
