//! A transaction is used by one at a time, and by nobody once its request has been answered.

use std::time::Duration;

use tower_idempotency_core::{Completion, Lease, Rollback, Store};

use crate::Fixture;
use crate::support::{PROMPT, SETTLED, acquire, begin, claim, created, effects, ensure, within};

/// R63: a guard that outlives the handler is told at once; when it drops, the writes are rolled
/// back.
pub async fn a_leaked_guard_is_told_at_once<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = begin(f, &owner, "leaked").await;
    let guard = f.hold(&tx).await.expect("a handler can hold it");
    let response = created("first");
    let completing = f.store().complete(&tx, &owner, &response);
    ensure!(
        within(PROMPT, "completing a held transaction", completing).await,
        Completion::Leaked,
        "a held transaction is leaked"
    );
    reclaimed(f, &tx, guard).await;
    effects(
        f,
        "leaked",
        0,
        "a leaked transaction's writes are rolled back",
    )
    .await;
    let freed = f.store().free(&owner).await;
    ensure!(freed, Ok(true), "the claim outlives the leak");
}

/// R63: the same of a roll-back.
pub async fn a_leaked_guard_is_told_by_the_rollback<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = begin(f, &owner, "leaked").await;
    let guard = f.hold(&tx).await.expect("a handler can hold it");
    let rolling_back = f.store().rollback(&tx);
    ensure!(
        within(PROMPT, "rolling back a held transaction", rolling_back).await,
        Rollback::Leaked,
        "a held transaction is leaked"
    );
    reclaimed(f, &tx, guard).await;
    effects(
        f,
        "leaked",
        0,
        "a leaked transaction's writes are rolled back",
    )
    .await;
}

/// Asserts that reclaiming waits for the guard, and then rolls back.
async fn reclaimed<F: Fixture>(f: &F, tx: &<F::Store as Store>::Tx, guard: F::Guard) {
    let mut reclaiming = Box::pin(f.store().reclaim(tx));
    let early = tokio::time::timeout(Duration::from_millis(100), reclaiming.as_mut()).await;
    ensure!(early, Err(_), "reclaiming waits for the guard");
    drop(guard);
    ensure!(
        within(SETTLED, "reclaiming what nobody holds any more", reclaiming).await,
        Rollback::RolledBack,
        "a reclaimed transaction is rolled back"
    );
}

/// R63: a leaked transaction is closed: its holder can end its use, nobody can begin another.
pub async fn a_leaked_transaction_is_closed<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = f.store().lend(Lease::claimed(owner.clone()));
    let guard = f.hold(&tx).await.expect("a handler can hold it");
    ensure!(
        f.store().complete(&tx, &owner, &created("first")).await,
        Completion::Leaked,
        "a held transaction is leaked"
    );
    drop(guard);
    ensure!(
        f.write(&tx, "late").await,
        Err(error) if error.is_closed(),
        "a leaked transaction is closed"
    );
    let _ = f.store().reclaim(&tx).await;
    effects(
        f,
        "late",
        0,
        "nothing is written through a closed transaction",
    )
    .await;
}

/// R13: a second use while the first lasts is an error: waiting for it would be a deadlock.
pub async fn a_second_use_is_refused<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let tx = f.store().lend(Lease::claimed(owner.clone()));
    let guard = f.hold(&tx).await.expect("a handler can hold it");
    let second = within(
        PROMPT,
        "a second use of a transaction",
        f.write(&tx, "early"),
    );
    ensure!(
        second.await,
        Err(error) if error.is_held(),
        "a second use is refused while the first lasts"
    );
    drop(guard);
    f.write(&tx, "effect")
        .await
        .expect("the next use is granted");
    ensure!(
        f.store().complete(&tx, &owner, &created("first")).await,
        Completion::Committed,
        "a claim is completed by its owner"
    );
    effects(f, "effect", 1, "what was granted is committed").await;
    effects(f, "early", 0, "what was refused is not there").await;
}

/// R63: a transaction that is over cannot be used: nobody begins anew what was answered.
pub async fn a_finished_transaction_is_closed<F: Fixture>(f: &F) {
    let (completed, rolled_back) = (claim("completed"), claim("rolled-back"));
    for owner in [&completed, &rolled_back] {
        acquire(f.store(), owner).await;
    }
    let tx = f.store().lend(Lease::claimed(completed.clone()));
    ensure!(
        f.store().complete(&tx, &completed, &created("first")).await,
        Completion::Committed,
        "a claim is completed by its owner"
    );
    ensure!(
        f.write(&tx, "late").await,
        Err(error) if error.is_closed(),
        "a completed transaction is closed"
    );
    let tx = begin(f, &rolled_back, "late").await;
    let _ = f.store().rollback(&tx).await;
    ensure!(
        f.write(&tx, "late").await,
        Err(error) if error.is_closed(),
        "a rolled back transaction is closed"
    );
    effects(
        f,
        "late",
        0,
        "nothing is written through a closed transaction",
    )
    .await;
}
