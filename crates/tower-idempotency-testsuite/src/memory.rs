//! The fixture of the memory store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tower_idempotency_core::{MemoryClock, MemoryStore, MemoryTx, TxError, TxGuard, Writes};

use crate::Fixture;

/// A [`MemoryStore`] with effects in memory: the pattern for fixtures of one's own.
#[derive(Debug)]
pub struct MemoryFixture {
    clock: MemoryClock,
    store: MemoryStore,
    effects: Effects,
}

#[derive(Debug, Clone, Default)]
struct Effects(Arc<Mutex<HashMap<String, u64>>>);

impl Effects {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryFixture {
    /// An empty store whose clock runs, as a database's does.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(MemoryClock::running())
    }

    /// An empty store with that clock.
    #[must_use]
    pub fn with_clock(clock: MemoryClock) -> Self {
        let store = MemoryStore::with_clock(clock.clone());
        Self {
            clock,
            store,
            effects: Effects::default(),
        }
    }
}

impl Default for MemoryFixture {
    fn default() -> Self {
        Self::new()
    }
}

impl Fixture for MemoryFixture {
    type Store = MemoryStore;
    type Guard = TxGuard<Writes>;

    fn store(&self) -> &MemoryStore {
        &self.store
    }

    async fn second(&self) -> MemoryStore {
        self.store.clone()
    }

    async fn write(&self, tx: &MemoryTx, what: &str) -> Result<(), TxError> {
        let (effects, what) = (self.effects.clone(), what.to_owned());
        let mut writes = tx.acquire(&self.store).await?;
        writes.on_commit(move || *effects.lock().entry(what).or_default() += 1);
        Ok(())
    }

    async fn effects(&self, what: &str) -> u64 {
        self.effects.lock().get(what).copied().unwrap_or(0)
    }

    async fn age(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn hold(&self, tx: &MemoryTx) -> Result<TxGuard<Writes>, TxError> {
        tx.acquire(&self.store).await
    }

    async fn end_by_hand(&self, tx: &MemoryTx) -> Result<(), TxError> {
        tx.acquire(&self.store).await?.commit_by_hand();
        Ok(())
    }
}
