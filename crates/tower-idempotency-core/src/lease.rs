//! What a request's transaction has to know of its claim.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use crate::error::TxError;
use crate::resource::ResourceRef;
use crate::{Claim, Store};

/// Accompanies the transaction that a [`Store`] lends to a handler.
///
/// The store's `Tx` asks it before it begins, and hands it what the handler made. Clones are one
/// lease.
#[derive(Clone)]
pub struct Lease(Arc<Inner>);

struct Inner {
    terms: Terms,
    span: tracing::Span,
    made: Mutex<Option<ResourceRef>>,
    phase: AtomicU8,
    /// Whether the handler ever asked for the transaction.
    used: AtomicBool,
}

/// How far completion has got, for when its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A commit may be under way.
    Committing,
    /// Nothing is committed.
    Proving,
    /// Nothing of ours is committed, but an effect may be there.
    Unmatched,
}

enum Terms {
    /// A claimed request; `renewal` is locked whenever the claim is being renewed.
    Claimed {
        claim: Claim,
        renewal: Option<tokio::sync::Mutex<Renewal>>,
    },
    /// A request without a record: its transaction is committed on 2xx all the same.
    Unclaimed,
    /// A request that can have no transaction.
    Refused(&'static str),
}

/// Whether the layer still keeps the claim fresh.
#[derive(Debug, PartialEq, Eq)]
enum Renewal {
    Running,
    /// The transaction has begun: a renewal after its snapshot would make its completion fail.
    Over,
}

/// How a renewal went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    Lost,
    Over,
}

impl Lease {
    /// The lease of a claimed request.
    #[must_use]
    pub fn claimed(claim: Claim) -> Self {
        Self::new(Terms::Claimed {
            claim,
            renewal: None,
        })
    }

    /// The lease of a claimed request whose claim the layer renews until the transaction begins.
    pub(crate) fn renewed(claim: Claim) -> Self {
        let renewal = Some(tokio::sync::Mutex::new(Renewal::Running));
        Self::new(Terms::Claimed { claim, renewal })
    }

    /// The lease of a request that has no record.
    #[must_use]
    pub fn unclaimed() -> Self {
        Self::new(Terms::Unclaimed)
    }

    /// The lease of a request whose transaction refuses, and says why.
    #[must_use]
    pub fn refused(why: &'static str) -> Self {
        Self::new(Terms::Refused(why))
    }

    fn new(terms: Terms) -> Self {
        Self(Arc::new(Inner {
            terms,
            span: tracing::Span::current(),
            made: Mutex::default(),
            phase: AtomicU8::new(Phase::Committing as u8),
            used: AtomicBool::new(false),
        }))
    }

    /// The claim, where there is one.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        match &self.0.terms {
            Terms::Claimed { claim, .. } => Some(claim),
            Terms::Unclaimed | Terms::Refused(_) => None,
        }
    }

    /// Begins the transaction by `open`, after one last renewal of the claim; once it has begun, the
    /// claim is renewed no more. To be called with no connection held.
    ///
    /// # Errors
    ///
    /// When the request can have no transaction, when its claim was taken over, when the store
    /// fails, or when `open` does; the claim then goes on to be renewed.
    ///
    /// # Cancellation
    ///
    /// Safe where `open` is.
    pub async fn begin<S: Store, T>(
        &self,
        store: &S,
        open: impl Future<Output = Result<T, TxError>>,
    ) -> Result<T, TxError> {
        self.using();
        let (claim, renewal) = match &self.0.terms {
            Terms::Refused(why) => return Err(TxError::refused(why)),
            Terms::Claimed {
                claim,
                renewal: Some(renewal),
            } => (claim, renewal),
            Terms::Claimed { renewal: None, .. } | Terms::Unclaimed => return open.await,
        };
        // Held over `open`, so that no renewal comes after the transaction's snapshot.
        let mut renewal = renewal.lock().await;
        if *renewal == Renewal::Running && !store.renew(claim).await? {
            return Err(TxError::claim_lost());
        }
        let opened = open.await?;
        *renewal = Renewal::Over;
        Ok(opened)
    }

    /// Notes that the handler asks for the transaction.
    pub(crate) fn using(&self) {
        self.0.used.store(true, Ordering::Relaxed);
    }

    /// Whether it ever did.
    pub(crate) fn is_used(&self) -> bool {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Renews the claim, unless the transaction has begun.
    pub(crate) async fn renew<S: Store>(&self, store: &S) -> Result<Renewed, crate::StoreError> {
        let Terms::Claimed {
            claim,
            renewal: Some(renewal),
        } = &self.0.terms
        else {
            return Ok(Renewed::Over);
        };
        let renewal = renewal.lock().await;
        if *renewal == Renewal::Over {
            return Ok(Renewed::Over);
        }
        Ok(if store.renew(claim).await? {
            Renewed::Yes
        } else {
            Renewed::Lost
        })
    }

    /// Notes that completion has begun, and is to find out whether the transaction is still ours.
    /// Nothing is committed up to here.
    pub fn proving(&self) {
        self.0.phase.store(Phase::Proving as u8, Ordering::SeqCst);
    }

    /// Notes that completion has matched nothing: whatever happens now, the key must not become
    /// free.
    pub fn unmatched(&self) {
        self.0.phase.store(Phase::Unmatched as u8, Ordering::SeqCst);
    }

    /// Notes that completion has matched, and is now being committed.
    pub fn committing(&self) {
        self.0
            .phase
            .store(Phase::Committing as u8, Ordering::SeqCst);
    }

    /// How far completion had got. A store that says nothing may have got anywhere.
    pub(crate) fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::SeqCst) {
            phase if phase == Phase::Proving as u8 => Phase::Proving,
            phase if phase == Phase::Unmatched as u8 => Phase::Unmatched,
            _ => Phase::Committing,
        }
    }

    /// Notes in the request's span how long the transaction took to begin.
    pub fn record_begin(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0.span.record("begin_us", us);
    }

    /// Notes what the request made. The last one counts.
    pub fn made(&self, resource_ref: ResourceRef) {
        *self.made_slot() = Some(resource_ref);
    }

    pub(crate) fn take_made(&self) -> Option<ResourceRef> {
        self.made_slot().take()
    }

    fn made_slot(&self) -> std::sync::MutexGuard<'_, Option<ResourceRef>> {
        // A panic cannot leave an `Option` half-written.
        self.0
            .made
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0.terms {
            Terms::Claimed { .. } => "Lease(claimed)",
            Terms::Unclaimed => "Lease(unclaimed)",
            Terms::Refused(_) => "Lease(refused)",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::{Fingerprint, IdempotencyKey, MemoryStore, Operation, Owner, RecordId};

    fn claim() -> Claim {
        let id = RecordId {
            owner: Owner::shared(),
            operation: Operation::from_static("publish"),
            key: IdempotencyKey::from_text("k").unwrap(),
        };
        Claim::new(id, Fingerprint::from_stored("hs1:"))
    }

    /// R34: the claim is renewed until the transaction has begun, not until somebody has tried to.
    #[tokio::test]
    async fn renewal_ends_with_the_beginning() {
        let store = MemoryStore::new();
        let claim = claim();
        store.claim(&claim).await.unwrap();
        let lease = Lease::renewed(claim.clone());

        let given_up = lease.begin(&store, pending::<Result<(), TxError>>());
        assert!(timeout(Duration::from_millis(10), given_up).await.is_err());
        assert_eq!(lease.renew(&store).await.unwrap(), Renewed::Yes);
        let failed = lease.begin(&store, async { Err::<(), _>(TxError::closed()) });
        assert!(failed.await.is_err());
        assert_eq!(lease.renew(&store).await.unwrap(), Renewed::Yes);
        lease.begin(&store, async { Ok(()) }).await.unwrap();
        assert_eq!(lease.renew(&store).await.unwrap(), Renewed::Over);

        store.free(&claim).await.unwrap();
        let lost = Lease::renewed(claim);
        assert_eq!(lost.renew(&store).await.unwrap(), Renewed::Lost);
        let begun = lost.begin(&store, async { Ok(()) }).await;
        assert!(begun.is_err_and(|error| error.is_claim_lost()));
    }

    /// A lease knows its claim, and hands on what was made last, once.
    #[tokio::test]
    async fn a_lease_has_its_claim_and_what_was_made() {
        assert!(Lease::unclaimed().claim().is_none());
        let lease = Lease::claimed(claim());
        assert_eq!(lease.claim().map(|claim| &claim.id), Some(&claim().id));
        assert_eq!(lease.take_made(), None);
        for made in ["post/1", "post/2"] {
            lease.made(ResourceRef::try_new(made).unwrap());
        }
        let last = ResourceRef::try_new("post/2").unwrap();
        assert_eq!(lease.take_made(), Some(last));
        assert_eq!(lease.take_made(), None);
    }
}
