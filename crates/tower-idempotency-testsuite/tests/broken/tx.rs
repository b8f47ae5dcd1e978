//! The transaction of a flawed store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tower_idempotency_core::{Closed, Lease, TombstoneResource, TxError, TxGuard, TxSlot};

use crate::flaw::Flaw;
use crate::rows::{State, place};
use crate::store::FlawedStore;

#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) writes: Vec<String>,
    pub(crate) buried: Vec<TombstoneResource>,
    pub(crate) ended: bool,
    /// Whether the claim was the record's when the transaction began.
    pub(crate) fenced: bool,
}

#[derive(Clone)]
pub(crate) struct FlawedTx {
    slot: Arc<Mutex<Slot>>,
}

struct Slot {
    slot: TxSlot<Pending>,
    leaked: bool,
}

impl FlawedTx {
    pub(crate) fn new(lease: Lease) -> Self {
        let slot = Slot {
            slot: TxSlot::new(lease),
            leaked: false,
        };
        Self {
            slot: Arc::new(Mutex::new(slot)),
        }
    }

    fn locked(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn slot(&self) -> TxSlot<Pending> {
        self.locked().slot.clone()
    }

    pub(crate) fn close(&self) -> Closed<Pending> {
        let closed = self.slot().close();
        if matches!(closed, Closed::Held) {
            self.locked().leaked = true;
        }
        closed
    }

    /// Forgets that the transaction is over.
    fn reopen(&self) {
        let mut locked = self.locked();
        locked.slot = TxSlot::new(locked.slot.lease().clone());
    }

    pub(crate) async fn acquire(&self, store: &FlawedStore) -> Result<TxGuard<Pending>, TxError> {
        loop {
            let slot = self.slot();
            let pending = async { Ok(begin(store, slot.lease())) };
            let begun = slot.acquire(|| slot.lease().begin(store, pending));
            match begun.await {
                Err(error) if error.is_held() && store.flaw == Flaw::SecondUseWaits => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(error) if error.is_closed() && self.reopens(store.flaw) => self.reopen(),
                acquired => return acquired,
            }
        }
    }

    fn reopens(&self, flaw: Flaw) -> bool {
        match flaw {
            Flaw::LentAfterEnd => true,
            Flaw::LentAfterLeak => self.locked().leaked,
            _ => false,
        }
    }

    pub(crate) async fn write(&self, store: &FlawedStore, what: &str) -> Result<(), TxError> {
        let mut pending = self.acquire(store).await?;
        match store.flaw {
            Flaw::WritesAtOnce => {
                store.data().add_effects([what]);
                return Ok(());
            }
            Flaw::DroppedWriteStands => {
                store.data().add_effects([what]);
                tokio::task::yield_now().await;
                if let Some(count) = store.data().effects.get_mut(what) {
                    *count -= 1;
                }
            }
            Flaw::WriteAfterEndUnseen => pending.ended = false,
            Flaw::LastWriteOnly => pending.writes.clear(),
            _ => {}
        }
        pending.writes.push(what.to_owned());
        Ok(())
    }

    pub(crate) async fn end_by_hand(&self, store: &FlawedStore) -> Result<(), TxError> {
        let mut pending = self.acquire(store).await?;
        let writes = std::mem::take(&mut pending.writes);
        store.data().add_effects(&writes);
        pending.ended = true;
        Ok(())
    }
}

fn begin(store: &FlawedStore, lease: &Lease) -> Pending {
    let mut data = store.data();
    let mut fenced = false;
    if let Some(claim) = lease.claim() {
        let place = place(&claim.id, store.flaw);
        fenced = data
            .rows
            .get(&place)
            .is_some_and(|row| row.state == State::Claimed && row.token == claim.token);
        data.open.push(place);
    }
    Pending {
        fenced,
        ..Pending::default()
    }
}
