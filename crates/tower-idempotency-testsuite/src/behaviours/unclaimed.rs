//! Requests without a record have a transaction all the same.

use tower_idempotency_core::{Completion, Lease, Rollback, Store};

use crate::Fixture;
use crate::support::{effects, ensure};

/// R8: the writes of a request without a record are committed.
pub async fn an_unclaimed_request_commits<F: Fixture>(f: &F) {
    let tx = f.store().lend(Lease::unclaimed());
    f.write(&tx, "effect").await.expect("a handler can write");
    effects(f, "effect", 0, "nothing is visible before the commit").await;
    ensure!(
        f.store().commit(&tx).await,
        Completion::Committed,
        "an unclaimed request commits"
    );
    effects(f, "effect", 1, "its write is committed").await;
    ensure!(
        f.write(&tx, "late").await,
        Err(error) if error.is_closed(),
        "a committed transaction is closed"
    );
}

/// R8: they are rolled back where it failed.
pub async fn an_unclaimed_request_rolls_back<F: Fixture>(f: &F) {
    let tx = f.store().lend(Lease::unclaimed());
    f.write(&tx, "effect").await.expect("a handler can write");
    ensure!(
        f.store().rollback(&tx).await,
        Rollback::RolledBack,
        "an unclaimed request rolls back"
    );
    effects(f, "effect", 0, "a rolled back write is gone").await;
}

/// R8: a transaction that was never begun is committed and rolled back without one.
pub async fn an_unclaimed_request_needs_no_transaction<F: Fixture>(f: &F) {
    ensure!(
        f.store().commit(&f.store().lend(Lease::unclaimed())).await,
        Completion::Committed,
        "a transaction that was never begun commits"
    );
    ensure!(
        f.store()
            .rollback(&f.store().lend(Lease::unclaimed()))
            .await,
        Rollback::RolledBack,
        "a transaction that was never begun rolls back"
    );
}

/// R8: a held or ended transaction is told apart for unclaimed requests too.
pub async fn an_unclaimed_request_tells_what_is_wrong<F: Fixture>(f: &F) {
    let tx = f.store().lend(Lease::unclaimed());
    f.write(&tx, "leaked").await.expect("a handler can write");
    let guard = f.hold(&tx).await.expect("a handler can hold it");
    ensure!(
        f.store().commit(&tx).await,
        Completion::Leaked,
        "a held transaction is leaked"
    );
    drop(guard);
    ensure!(
        f.store().reclaim(&tx).await,
        Rollback::RolledBack,
        "a reclaimed transaction is rolled back"
    );
    effects(
        f,
        "leaked",
        0,
        "a leaked transaction's writes are rolled back",
    )
    .await;

    let tx = f.store().lend(Lease::unclaimed());
    f.write(&tx, "by hand").await.expect("a handler can write");
    f.end_by_hand(&tx).await.expect("a handler can end it");
    ensure!(
        f.store().commit(&tx).await,
        Completion::NotOurs,
        "a transaction that was ended by hand is not ours"
    );
}

/// R9: a request that can have no transaction is refused one, and ends without.
pub async fn a_refused_transaction_says_so<F: Fixture>(f: &F) {
    let tx = f.store().lend(Lease::refused("it has no name"));
    ensure!(
        f.write(&tx, "effect").await,
        Err(error) if error.is_refused(),
        "a refused transaction says so"
    );
    ensure!(
        f.store().commit(&tx).await,
        Completion::Committed,
        "a request without a transaction ends well"
    );
    effects(f, "effect", 0, "what was refused is not there").await;
}
