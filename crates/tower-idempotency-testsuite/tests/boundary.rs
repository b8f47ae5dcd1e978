//! With a clock that stands still, the boundaries are exact.

use std::time::Duration;

use tower_idempotency_core::{
    Claim, ClaimOutcome, Completion, Fingerprint, IdempotencyKey, Lease, MemoryClock, MemoryStore,
    Operation, Owner, RecordId, Store, StoredResponse,
};

const MILLISECOND: Duration = Duration::from_millis(1);
const STALE_AFTER: Duration = Duration::from_secs(300);
const TTL: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn store() -> (MemoryClock, MemoryStore) {
    let clock = MemoryClock::standing();
    let store = MemoryStore::with_clock(clock.clone());
    (clock, store)
}

fn claim() -> Claim {
    let id = RecordId {
        owner: Owner::new("owner").unwrap(),
        operation: Operation::from_static("publish"),
        key: IdempotencyKey::from_text("key").unwrap(),
    };
    let fingerprint = Fingerprint::builder(&http::Method::POST).finish();
    Claim {
        stale_after: STALE_AFTER,
        ttl: Some(TTL),
        ..Claim::new(id, fingerprint)
    }
}

async fn answer(store: &MemoryStore) -> ClaimOutcome {
    store.claim(&claim()).await.unwrap()
}

async fn complete(store: &MemoryStore, claim: &Claim) -> StoredResponse {
    let response = StoredResponse::kept(http::StatusCode::CREATED, "", "");
    let tx = store.lend(Lease::claimed(claim.clone()));
    let completion = store.complete(&tx, claim, &response).await;
    assert!(matches!(completion, Completion::Committed));
    response
}

/// A claim is alive a millisecond before its time is over, and stale when it is.
#[tokio::test]
async fn staleness_begins_exactly_at_its_time() {
    let (clock, store) = store();
    store.claim(&claim()).await.unwrap();
    clock.advance(STALE_AFTER - MILLISECOND);
    assert_eq!(answer(&store).await, ClaimOutcome::InProgress);
    clock.advance(MILLISECOND);
    let taken_over = ClaimOutcome::Acquired { taken_over: true };
    assert_eq!(answer(&store).await, taken_over);
    assert_eq!(answer(&store).await, ClaimOutcome::InProgress);
}

/// A renewal counts from its own instant.
#[tokio::test]
async fn renewal_counts_from_its_own_instant() {
    let (clock, store) = store();
    let owner = claim();
    store.claim(&owner).await.unwrap();
    clock.advance(STALE_AFTER - MILLISECOND);
    assert!(store.renew(&owner).await.unwrap());
    clock.advance(STALE_AFTER - MILLISECOND);
    assert_eq!(answer(&store).await, ClaimOutcome::InProgress);
    clock.advance(MILLISECOND);
    let taken_over = ClaimOutcome::Acquired { taken_over: true };
    assert_eq!(answer(&store).await, taken_over);
}

/// A result is answered a millisecond before its ttl is over, and replaced or purged when it is.
#[tokio::test]
async fn expiry_begins_exactly_at_its_time() {
    let (clock, store) = store();
    let owner = claim();
    store.claim(&owner).await.unwrap();
    let response = complete(&store, &owner).await;
    clock.advance(TTL - MILLISECOND);
    assert_eq!(store.purge(10).await.unwrap(), 0);
    assert_eq!(answer(&store).await, ClaimOutcome::Completed(response));
    clock.advance(MILLISECOND);
    assert_eq!(store.clone().purge(10).await.unwrap(), 1);
    let new = ClaimOutcome::Acquired { taken_over: false };
    assert_eq!(answer(&store).await, new);
}

/// A claim is purged when it has been stale for 30 days, and not a millisecond before.
#[tokio::test]
async fn a_stale_claim_is_purged_exactly_after_30_days() {
    let (clock, store) = store();
    store.claim(&claim()).await.unwrap();
    clock.advance(STALE_AFTER + 30 * DAY - MILLISECOND);
    assert_eq!(store.purge(10).await.unwrap(), 0);
    clock.advance(MILLISECOND);
    assert_eq!(store.purge(10).await.unwrap(), 1);
}
