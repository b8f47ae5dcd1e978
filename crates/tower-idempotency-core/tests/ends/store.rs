//! A store that answers what a test tells it to, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use tower_idempotency_core::{
    Claim, ClaimOutcome, ClaimToken, Completion, Lease, Owner, Record, RecordId, Resolution,
    Rollback, Store, StoreError, StoredResponse, TombstoneResource, TxError,
};

pub(crate) type Claims = fn() -> Result<ClaimOutcome, StoreError>;
/// `None` where it never ends.
pub(crate) type Completes = fn(&Lease) -> Option<Completion>;
pub(crate) type Commits = fn() -> Completion;
pub(crate) type Resolves = fn(&Claim) -> Result<Resolution, StoreError>;
pub(crate) type Looks = fn(ClaimToken) -> Result<Option<Record>, StoreError>;

/// What the store answers.
#[derive(Clone, Copy)]
pub(crate) struct Script {
    pub(crate) claim: Claims,
    pub(crate) complete: Completes,
    pub(crate) commit: Commits,
    pub(crate) rollback: Rollback,
    pub(crate) reclaim: Rollback,
    pub(crate) resolve: Resolves,
    pub(crate) free: fn() -> Result<bool, StoreError>,
    pub(crate) mark: fn() -> Result<bool, StoreError>,
    pub(crate) lookup: Looks,
}

impl Script {
    /// All goes well.
    pub(crate) const GOOD: Self = Self {
        claim: || Ok(ClaimOutcome::Acquired { taken_over: false }),
        complete: |_| Some(Completion::Committed),
        commit: || Completion::Committed,
        rollback: Rollback::RolledBack,
        reclaim: Rollback::RolledBack,
        resolve: |_| unreachable!("nothing is in doubt"),
        free: || Ok(true),
        mark: || Ok(true),
        lookup: |_| unreachable!("the claim is there"),
    };
}

/// A store with a script.
#[derive(Clone)]
pub(crate) struct Scripted {
    script: Script,
    asked: Arc<Mutex<Vec<&'static str>>>,
    token: Arc<Mutex<Option<ClaimToken>>>,
}

impl Scripted {
    pub(crate) fn new(script: Script) -> Self {
        Self {
            script,
            asked: Arc::default(),
            token: Arc::default(),
        }
    }

    /// What it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        self.asked.lock().unwrap().clone()
    }

    fn ask(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }
}

impl Store for Scripted {
    type Tx = Lease;

    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        self.ask("claim");
        *self.token.lock().unwrap() = Some(claim.token);
        (self.script.claim)()
    }

    fn lend(&self, lease: Lease) -> Lease {
        lease
    }

    async fn complete(&self, tx: &Lease, _: &Claim, _: &StoredResponse) -> Completion {
        self.ask("complete");
        match (self.script.complete)(tx) {
            Some(completion) => completion,
            None => std::future::pending().await,
        }
    }

    async fn commit(&self, _: &Lease) -> Completion {
        self.ask("commit");
        (self.script.commit)()
    }

    async fn rollback(&self, _: &Lease) -> Rollback {
        self.ask("rollback");
        self.script.rollback
    }

    async fn reclaim(&self, _: &Lease) -> Rollback {
        self.ask("reclaim");
        self.script.reclaim
    }

    async fn resolve(&self, claim: &Claim) -> Result<Resolution, StoreError> {
        self.ask("resolve");
        (self.script.resolve)(claim)
    }

    async fn free(&self, _: &Claim) -> Result<bool, StoreError> {
        self.ask("free");
        (self.script.free)()
    }

    async fn renew(&self, _: &Claim) -> Result<bool, StoreError> {
        self.ask("renew");
        Ok(true)
    }

    async fn mark_unknown(&self, _: &Claim) -> Result<bool, StoreError> {
        self.ask("mark");
        (self.script.mark)()
    }

    async fn tombstone_resource(&self, _: &Lease, _: &TombstoneResource) -> Result<u64, TxError> {
        unreachable!("nothing is deleted")
    }

    async fn lookup(&self, _: &RecordId) -> Result<Option<Record>, StoreError> {
        self.ask("lookup");
        let token = self.token.lock().unwrap().expect("a claim came first");
        (self.script.lookup)(token)
    }

    async fn release(&self, _: &RecordId, _: &ClaimToken) -> Result<bool, StoreError> {
        unreachable!("nobody operates")
    }

    async fn erase_owner(&self, _: &Owner) -> Result<u64, StoreError> {
        unreachable!("nobody is erased")
    }

    async fn purge(&self, _: u32) -> Result<u64, StoreError> {
        unreachable!("nothing is purged")
    }
}
