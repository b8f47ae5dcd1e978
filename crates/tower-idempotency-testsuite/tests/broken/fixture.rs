//! The fixture of a flawed store.

use std::time::Duration;

use tower_idempotency_core::{TxError, TxGuard};
use tower_idempotency_testsuite::Fixture;

use crate::flaw::Flaw;
use crate::store::FlawedStore;
use crate::tx::{FlawedTx, Pending};

pub(crate) struct FlawedFixture {
    store: FlawedStore,
}

impl FlawedFixture {
    pub(crate) fn new(flaw: Flaw) -> Self {
        Self {
            store: FlawedStore::new(flaw),
        }
    }
}

impl Fixture for FlawedFixture {
    type Store = FlawedStore;
    type Guard = TxGuard<Pending>;

    fn store(&self) -> &FlawedStore {
        &self.store
    }

    async fn second(&self) -> FlawedStore {
        self.store.second()
    }

    async fn write(&self, tx: &FlawedTx, what: &str) -> Result<(), TxError> {
        tx.write(&self.store, what).await
    }

    async fn effects(&self, what: &str) -> u64 {
        self.store.data().effects.get(what).copied().unwrap_or(0)
    }

    async fn age(&self, by: Duration) {
        self.store.advance(by);
    }

    async fn hold(&self, tx: &FlawedTx) -> Result<TxGuard<Pending>, TxError> {
        tx.acquire(&self.store).await
    }

    async fn end_by_hand(&self, tx: &FlawedTx) -> Result<(), TxError> {
        tx.end_by_hand(&self.store).await
    }
}
