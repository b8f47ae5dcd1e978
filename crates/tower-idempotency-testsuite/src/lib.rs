//! The contract that every store of `tower-idempotency` must pass.
//!
//! A [`Store`](tower_idempotency_core::Store) decides whether one key can ever commit two effects.
//! This crate has what it must do, as one test for each [behaviour](behaviours), so that a store of
//! your own is tested by one line, [`contract!`], and a [`Fixture`] that tells how to write through
//! its transaction and how to let time pass.
//!
//! # Use
//!
//! Put the crate into `[dev-dependencies]` and this into `tests/contract.rs`. The fixture here is
//! the one of the memory store, which is exported as [`MemoryFixture`]:
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//!
//! use tower_idempotency_core::{MemoryClock, MemoryStore, MemoryTx, TxError, TxGuard, Writes};
//! use tower_idempotency_testsuite::{Fixture, contract};
//!
//! struct Memory {
//!     clock: MemoryClock,
//!     store: MemoryStore,
//!     effects: Arc<Mutex<HashMap<String, u64>>>,
//! }
//!
//! impl Memory {
//!     async fn fresh() -> Self {
//!         let clock = MemoryClock::running();
//!         let store = MemoryStore::with_clock(clock.clone());
//!         Self { clock, store, effects: Arc::default() }
//!     }
//! }
//!
//! impl Fixture for Memory {
//!     type Store = MemoryStore;
//!     type Guard = TxGuard<Writes>;
//!
//!     fn store(&self) -> &MemoryStore {
//!         &self.store
//!     }
//!
//!     // A store over a database makes a pool of its own here.
//!     async fn second(&self) -> MemoryStore {
//!         self.store.clone()
//!     }
//!
//!     async fn write(&self, tx: &MemoryTx, what: &str) -> Result<(), TxError> {
//!         let (effects, what) = (self.effects.clone(), what.to_owned());
//!         let mut writes = tx.acquire(&self.store).await?;
//!         writes.on_commit(move || *effects.lock().unwrap().entry(what).or_default() += 1);
//!         Ok(())
//!     }
//!
//!     async fn effects(&self, what: &str) -> u64 {
//!         self.effects.lock().unwrap().get(what).copied().unwrap_or(0)
//!     }
//!
//!     async fn age(&self, by: Duration) {
//!         self.clock.advance(by);
//!     }
//!
//!     async fn hold(&self, tx: &MemoryTx) -> Result<TxGuard<Writes>, TxError> {
//!         tx.acquire(&self.store).await
//!     }
//!
//!     async fn end_by_hand(&self, tx: &MemoryTx) -> Result<(), TxError> {
//!         tx.acquire(&self.store).await?.commit_by_hand();
//!         Ok(())
//!     }
//! }
//!
//! contract!(Memory::fresh().await);
//! ```
//!
//! `cargo test` then names every behaviour that the store does not have. None can be left out:
//! whoever runs the contract runs all of it. To look into one, call it: it is a plain async
//! function that panics where the store fails it.
//!
//! ```
//! # use tower_idempotency_testsuite::{MemoryFixture, behaviours};
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! behaviours::first_claim_wins(&MemoryFixture::new()).await;
//! # });
//! ```
//!
//! # What it cannot see
//!
//! Power cuts, failovers and a killed process; what a tombstone leaves on the disk; how many round
//! trips a claim costs. Those are for tests that know the database.

pub mod behaviours;
mod fixture;
mod macros;
mod memory;
mod support;

pub use fixture::Fixture;
#[doc(hidden)]
pub use macros::run;
pub use memory::MemoryFixture;
