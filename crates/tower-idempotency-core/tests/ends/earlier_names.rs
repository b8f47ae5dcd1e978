//! An operation that had another name.

use std::time::Duration;

use http::StatusCode;
use tower_idempotency_core::{
    Claim, IdempotencyKey, IdempotencyLayer, MemoryClock, MemoryStore, Operation, Owner, RecordId,
    Store as _,
};

use crate::{fingerprint, sent, told};

async fn send(store: &MemoryStore, name: &'static str, earlier: Option<&'static str>) -> String {
    let mut layer = IdempotencyLayer::with_store(store.clone()).operation(name);
    if let Some(earlier) = earlier {
        layer = layer.operation_alias(earlier);
    }
    let response = sent(&layer, Some("k"), async || StatusCode::CREATED).await;
    told(&response)
}

fn id(operation: &'static str) -> RecordId {
    RecordId {
        owner: Owner::shared(),
        operation: Operation::from_static(operation),
        key: IdempotencyKey::from_text("k").expect("a key"),
    }
}

/// R6: what was completed under the earlier name is replayed under the new one, which keeps no claim.
#[tokio::test(start_paused = true)]
async fn a_record_under_the_earlier_name_counts() {
    let store = MemoryStore::new();
    assert_eq!(send(&store, "old", None).await, "201");
    assert_eq!(send(&store, "new", Some("old")).await, "replay");
    assert!(store.lookup(&id("new")).await.unwrap().is_none());
    assert_eq!(send(&store, "another", None).await, "201");
}

/// R6: a claim under the earlier name counts while it is fresh; a stale one is taken away from its owner,
/// who may only be slow.
#[tokio::test(start_paused = true)]
async fn a_stale_claim_under_the_earlier_name_is_released() {
    let clock = MemoryClock::standing();
    let store = MemoryStore::with_clock(clock.clone());
    let old = Claim::new(id("old"), fingerprint());
    store.claim(&old).await.unwrap();
    assert_eq!(send(&store, "new", Some("old")).await, "409 InProgress");
    clock.advance(Duration::from_secs(301));
    assert_eq!(send(&store, "new", Some("old")).await, "201");
    assert!(store.lookup(&old.id).await.unwrap().is_none());
}
