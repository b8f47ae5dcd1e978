//! Claims that are renewed: when, and for how long.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep};
use tower_idempotency_core::IdempotencyLayer;

use crate::store::{Script, Scripted};
use crate::{sent, told};

/// A handler that takes so many seconds, with renewals up to a ceiling. What it is told and when, and
/// how often the claim was renewed.
async fn run(takes: u64, ceiling: u64) -> (String, u64, usize) {
    let store = Scripted::new(Script::GOOD);
    let layer = IdempotencyLayer::with_store(store.clone())
        .operation("publish")
        .stale_after(Duration::from_secs(300))
        .renew_claims(Duration::from_secs(ceiling));
    let begun = Instant::now();
    let handler = move || async move {
        sleep(Duration::from_secs(takes)).await;
        StatusCode::CREATED
    };
    let response = sent(&layer, Some("k"), handler).await;
    let renewed = store
        .asked()
        .iter()
        .filter(|asked| **asked == "renew")
        .count();
    (told(&response), begun.elapsed().as_secs(), renewed)
}

/// R34: a claim is renewed each third of its staleness, and never past the ceiling, where its handler
/// is stopped.
#[tokio::test(start_paused = true)]
async fn a_claim_is_renewed_up_to_its_ceiling() {
    let created = |took, renewed| ("201".to_owned(), took, renewed);
    assert_eq!(run(50, 450).await, created(50, 0));
    assert_eq!(run(250, 450).await, created(250, 2));
    let stopped = |took, renewed| ("504 HandlerTimeout".to_owned(), took, renewed);
    assert_eq!(run(10_000, 450).await, stopped(450, 4));
    assert_eq!(run(10_000, 400).await, stopped(400, 3));
    assert_eq!(run(10_000, 90).await, stopped(90, 0));
}
