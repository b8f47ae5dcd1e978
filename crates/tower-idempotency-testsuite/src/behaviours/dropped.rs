//! What is left by a step that was dropped on its way.

use tower_idempotency_core::{ClaimOutcome, Completion, Lease, Resolution, Rollback, Store};

use crate::Fixture;
use crate::support::{
    SETTLED, acquire, begin, claim, complete, created, effects, ensure, insist, lookup,
    poll_at_most, same_answer, stops, within,
};

/// R56: a claim that is dropped on its way is either there for everybody or not at all, and leaves
/// no open transaction in which later claims would be lost.
pub async fn a_dropped_claim_leaves_nothing_open<F: Fixture>(f: &F) {
    let second = f.second().await;
    for (round, polls) in stops() {
        let dropped = claim(&format!("dropped-{round}"));
        let _ = poll_at_most(polls, f.store().claim(&dropped)).await;

        let next = claim(&format!("next-{round}"));
        let outcome = insist("a claim after a dropped one", || f.store().claim(&next)).await;
        ensure!(
            outcome,
            ClaimOutcome::Acquired { taken_over: false },
            "the claim after a dropped one is acquired"
        );
        ensure!(
            lookup(&second, &next.id).await.and_then(|record| record.token()),
            Some(token) if *token == next.token,
            "the claim after a dropped one is committed"
        );

        let again = claim(&format!("dropped-{round}"));
        match insist("another arrival of the dropped claim", || {
            second.claim(&again)
        })
        .await
        {
            ClaimOutcome::InProgress => {}
            ClaimOutcome::Acquired { taken_over: false } => {
                complete(&second, &again, &created("again")).await;
            }
            other => panic!("another arrival of the dropped claim got {other:?}"),
        }
    }
}

/// R56, R62: a completion that is dropped on its way has committed both or neither, and resolving
/// tells.
pub async fn a_dropped_completion_is_both_or_neither<F: Fixture>(f: &F) {
    for (round, polls) in stops() {
        let (key, response) = (format!("key-{round}"), created("first"));
        let owner = claim(&key);
        acquire(f.store(), &owner).await;
        let tx = begin(f, &owner, &key).await;
        let _ = poll_at_most(polls, f.store().complete(&tx, &owner, &response)).await;
        let resolution = insist("resolving a dropped completion", || {
            f.store().resolve(&owner)
        });
        match resolution.await {
            Resolution::Committed(stored) if same_answer(&stored, &response) => {
                effects(f, &key, 1, "a completion that was proved has its effect").await;
            }
            Resolution::Freed => {
                effects(f, &key, 0, "a completion that was freed has none").await;
                ensure!(
                    lookup(f.store(), &owner.id).await,
                    None,
                    "a freed key has no record"
                );
            }
            other => panic!("resolving a dropped completion got {other:?}"),
        }
    }
}

/// R54: a handler that is dropped while it writes leaves nothing: its retry's write is the only
/// one.
pub async fn a_dropped_write_is_rolled_back<F: Fixture>(f: &F) {
    let second = f.second().await;
    for (round, polls) in stops() {
        let key = format!("key-{round}");
        let dropped = claim(&key);
        acquire(f.store(), &dropped).await;
        let tx = f.store().lend(Lease::claimed(dropped.clone()));
        let _ = poll_at_most(polls, f.write(&tx, &key)).await;
        ensure!(
            within(
                SETTLED,
                "rolling back a dropped handler",
                f.store().rollback(&tx)
            )
            .await,
            Rollback::RolledBack,
            "a dropped handler's transaction is rolled back"
        );
        let freed = insist("freeing", || f.store().free(&dropped)).await;
        assert!(freed, "a dropped handler's claim is freed");

        let retry = claim(&key);
        let outcome = insist("claiming", || second.claim(&retry)).await;
        ensure!(
            outcome,
            ClaimOutcome::Acquired { taken_over: false },
            "a retry is acquired"
        );
        let tx = begin(f, &retry, &key).await;
        ensure!(
            f.store().complete(&tx, &retry, &created("retry")).await,
            Completion::Committed,
            "a retry commits"
        );
        effects(f, &key, 1, "a retry's write is the only one").await;
    }
}
