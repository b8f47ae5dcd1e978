//! The handler's writes and the record stand or fall together.

use tower_idempotency_core::{ClaimOutcome, Completion, Lease, Rollback, Store};

use crate::Fixture;
use crate::support::{acquire, answer, answers, begin, claim, created, effects, ensure};

/// R50: the handler's writes become visible with the record, all of them, and not before.
pub async fn writes_and_record_commit_together<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = begin(f, &owner, "effect").await;
    f.write(&tx, "effect")
        .await
        .expect("a handler writes again");
    f.write(&tx, "another")
        .await
        .expect("a handler writes again");
    effects(f, "effect", 0, "nothing is visible before the commit").await;
    ensure!(
        f.store().complete(&tx, &owner, &created("first")).await,
        Completion::Committed,
        "a claim is completed by its owner"
    );
    effects(f, "effect", 2, "every write is committed").await;
    effects(f, "another", 1, "every write is committed").await;
    answers(&f.second().await, &owner.id, &created("first")).await;
}

/// R50: a handler that never began its transaction is completed all the same.
pub async fn completing_needs_no_transaction<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = f.store().lend(Lease::claimed(owner.clone()));
    ensure!(
        f.store().complete(&tx, &owner, &created("first")).await,
        Completion::Committed,
        "completion needs no transaction of the handler's"
    );
    answers(&f.second().await, &owner.id, &created("first")).await;
}

/// R54: a roll-back removes the handler's writes and leaves the claim, which is then freed.
pub async fn rollback_removes_the_writes<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = begin(f, &owner, "effect").await;
    ensure!(
        f.store().rollback(&tx).await,
        Rollback::RolledBack,
        "a transaction is rolled back"
    );
    effects(f, "effect", 0, "a rolled back write is gone").await;
    let freed = f.store().free(&owner).await;
    ensure!(freed, Ok(true), "the claim outlives the roll-back");

    let retry = claim("key");
    acquire(f.store(), &retry).await;
    let tx = begin(f, &retry, "effect").await;
    ensure!(
        f.store().complete(&tx, &retry, &created("retry")).await,
        Completion::Committed,
        "a retry commits"
    );
    effects(f, "effect", 1, "a retry's write is the only one").await;
}

/// R54: a roll-back of a transaction that was never begun is one.
pub async fn rolling_back_needs_no_transaction<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = f.store().lend(Lease::claimed(owner.clone()));
    ensure!(
        f.store().rollback(&tx).await,
        Rollback::RolledBack,
        "a transaction that was never begun is rolled back"
    );
    let freed = f.store().free(&owner).await;
    ensure!(freed, Ok(true), "the claim outlives the roll-back");
}

/// R64: a transaction that the handler ended itself is not ours, which is another thing than a lost
/// claim: some effect may be there. Once marked, the key answers that its outcome is unknown.
pub async fn ended_by_hand_is_not_ours<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = begin(f, &owner, "by hand").await;
    f.end_by_hand(&tx).await.expect("a handler can end it");
    ensure!(
        f.store().complete(&tx, &owner, &created("first")).await,
        Completion::NotOurs,
        "a transaction that was ended by hand is not ours"
    );
    effects(f, "by hand", 1, "the handler committed it itself").await;
    ensure!(
        answer(f.store(), &claim("key")).await,
        ClaimOutcome::InProgress,
        "the record is still the owner's claim"
    );
    let marked = f.store().mark_unknown(&owner).await;
    ensure!(marked, Ok(true), "the owner marks its claim");
    ensure!(
        answer(f.store(), &claim("key")).await,
        ClaimOutcome::Completed(stored) if stored.content.is_none() && stored.status == 500,
        "the key answers that its outcome is unknown"
    );
}

/// R64: what was written after the handler had ended its transaction is not taken for ours either.
pub async fn written_after_the_end_is_not_ours<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = begin(f, &owner, "before").await;
    f.end_by_hand(&tx).await.expect("a handler can end it");
    let _ = f.write(&tx, "after").await;
    ensure!(
        f.store().complete(&tx, &owner, &created("first")).await,
        Completion::NotOurs,
        "a transaction that was ended by hand is not ours"
    );
    let marked = f.store().mark_unknown(&owner).await;
    ensure!(marked, Ok(true), "the record is still the owner's claim");
}

/// R64: a roll-back tells that there was nothing left to roll back.
pub async fn rolling_back_what_was_ended_by_hand<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = begin(f, &owner, "by hand").await;
    f.end_by_hand(&tx).await.expect("a handler can end it");
    ensure!(
        f.store().rollback(&tx).await,
        Rollback::NotOurs,
        "a transaction that was ended by hand cannot be rolled back"
    );
    effects(f, "by hand", 1, "the handler committed it itself").await;
}
