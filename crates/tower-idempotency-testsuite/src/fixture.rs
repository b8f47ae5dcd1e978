//! What a store's implementor provides.

use std::future::Future;
use std::time::Duration;

use tower_idempotency_core::{Store, TxError};

/// The store under test, in a world of its own where it can be watched.
///
/// Made anew for every behaviour, empty, sharing nothing with any other. Its methods panic where
/// the world itself is broken (the database has gone); a behaviour's failure is then that panic.
pub trait Fixture: Send + Sync + Sized + 'static {
    /// The store under test.
    type Store: Store;

    /// Keeps a transaction in use until it is dropped.
    type Guard: Send + 'static;

    /// The store. Behaviours read records while a transaction is open, so a pool needs two
    /// connections at least.
    fn store(&self) -> &Self::Store;

    /// Makes another handle to the same data, as a second process would have: a pool of its own.
    fn second(&self) -> impl Future<Output = Self::Store> + Send;

    /// Adds one effect of that name within the transaction, as a handler would, beginning it on
    /// first use.
    ///
    /// # Errors
    ///
    /// When the transaction cannot be had.
    fn write(
        &self,
        tx: &<Self::Store as Store>::Tx,
        what: &str,
    ) -> impl Future<Output = Result<(), TxError>> + Send;

    /// Counts the committed effects of that name, through another connection than the
    /// transaction's.
    fn effects(&self, what: &str) -> impl Future<Output = u64> + Send;

    /// Lets that much time pass for all records there are: moves the store's clock forward, or all
    /// times of all records back. Never called while a transaction is open.
    fn age(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Takes the transaction into use, beginning it on first use.
    ///
    /// # Errors
    ///
    /// When the transaction cannot be had.
    fn hold(
        &self,
        tx: &<Self::Store as Store>::Tx,
    ) -> impl Future<Output = Result<Self::Guard, TxError>> + Send;

    /// Commits the transaction behind the store's back, as a handler's own `COMMIT` would.
    ///
    /// # Errors
    ///
    /// When the transaction cannot be had.
    fn end_by_hand(
        &self,
        tx: &<Self::Store as Store>::Tx,
    ) -> impl Future<Output = Result<(), TxError>> + Send;

    /// Runs when a behaviour has passed. By default it does nothing; it may close pools and check
    /// that no transaction was left open.
    fn end(self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
