//! Who does not hold the token changes nothing.

use tower_idempotency_core::{Completion, Lease, RecordState, Resolution, Store};

use crate::Fixture;
use crate::support::{
    MARGIN, STALE_AFTER, acquire, answers, begin, claim, complete, created, effects, ensure,
    finish, foreign, lookup, still_running,
};

/// R32: completing with a token that is not the record's is `Lost`: the record stays, the writes
/// go.
pub async fn completion_is_fenced<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let stranger = foreign(&owner);
    let tx = begin(f, &stranger, "stranger's").await;
    ensure!(
        f.store()
            .complete(&tx, &stranger, &created("stranger's"))
            .await,
        Completion::Lost,
        "completion with a foreign token is lost"
    );
    effects(f, "stranger's", 0, "a lost claim's writes are rolled back").await;
    still_running(f.store(), &owner).await;
    complete(f.store(), &owner, &created("owner's")).await;
}

/// R32: completing with a foreign token and no transaction is `Lost` too.
pub async fn completion_without_a_transaction_is_fenced<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let stranger = foreign(&owner);
    let tx = f.store().lend(Lease::claimed(stranger.clone()));
    ensure!(
        f.store()
            .complete(&tx, &stranger, &created("stranger's"))
            .await,
        Completion::Lost,
        "completion with a foreign token is lost"
    );
    still_running(f.store(), &owner).await;
}

/// R32: freeing with a foreign token frees nothing, and says so.
pub async fn freeing_is_fenced<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let freed = f.store().free(&foreign(&owner)).await;
    ensure!(
        freed,
        Ok(false),
        "freeing with a foreign token frees nothing"
    );
    still_running(f.store(), &owner).await;
}

/// R32: renewing with a foreign token renews nothing, and says so.
pub async fn renewal_is_fenced<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    f.age(STALE_AFTER - MARGIN).await;
    let renewed = f.store().renew(&foreign(&owner)).await;
    ensure!(
        renewed,
        Ok(false),
        "renewing with a foreign token renews nothing"
    );
    f.age(MARGIN).await;
    ensure!(
        lookup(f.store(), &owner.id).await.map(|record| record.state),
        Some(RecordState::Claimed { token, stale: true, .. }) if *token == owner.token,
        "the claim went stale in its own time"
    );
}

/// R32: marking with a foreign token marks nothing, and says so.
pub async fn marking_is_fenced<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let marked = f.store().mark_unknown(&foreign(&owner)).await;
    ensure!(
        marked,
        Ok(false),
        "marking with a foreign token marks nothing"
    );
    still_running(f.store(), &owner).await;
}

/// R32: an operator releases the claim that was looked up, and no later one.
pub async fn release_is_fenced<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let released = f.store().release(&owner.id, &foreign(&owner).token).await;
    ensure!(
        released,
        Ok(false),
        "releasing with a foreign token releases nothing"
    );
    still_running(f.store(), &owner).await;
    let released = f.store().release(&owner.id, &owner.token).await;
    ensure!(
        released,
        Ok(true),
        "the claim that was looked up is released"
    );
    ensure!(
        lookup(f.store(), &owner.id).await,
        None,
        "a released key has no record"
    );
}

/// R32, R62: resolving with a foreign token frees nothing, and shows whose the record is.
pub async fn resolving_is_fenced<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let resolution = f.store().resolve(&foreign(&owner)).await;
    ensure!(
        resolution,
        Ok(Resolution::Other(record)) if record.token() == Some(owner.token),
        "resolving with a foreign token shows the owner's record"
    );
    still_running(f.store(), &owner).await;
}

/// R32: a completed record is settled: its own token neither frees, releases, renews nor marks it.
pub async fn a_completed_record_is_settled<F: Fixture>(f: &F) {
    let owner = claim("key");
    finish(f.store(), &owner, &created("first")).await;
    let store = f.store();
    let steps = [
        ("freed", store.free(&owner).await),
        ("released", store.release(&owner.id, &owner.token).await),
        ("renewed", store.renew(&owner).await),
        ("marked", store.mark_unknown(&owner).await),
    ];
    for (step, changed) in steps {
        ensure!(changed, Ok(false), "a completed record is not {step}");
    }
    answers(store, &owner.id, &created("first")).await;
}

/// R32: a record is completed once: a second completion by its own claim commits nothing.
pub async fn a_record_is_completed_once<F: Fixture>(f: &F) {
    let owner = claim("key");
    finish(f.store(), &owner, &created("first")).await;
    let tx = begin(f, &owner, "again").await;
    ensure!(
        f.store().complete(&tx, &owner, &created("again")).await,
        Completion::Lost | Completion::NotOurs | Completion::RolledBack(_),
        "a second completion does not commit"
    );
    effects(
        f,
        "again",
        0,
        "a second completion's writes are rolled back",
    )
    .await;
    answers(f.store(), &owner.id, &created("first")).await;
}

/// R32: a second completion by its own claim changes nothing without a transaction either.
pub async fn a_record_is_completed_once_without_a_transaction<F: Fixture>(f: &F) {
    let owner = claim("key");
    finish(f.store(), &owner, &created("first")).await;
    let tx = f.store().lend(Lease::claimed(owner.clone()));
    ensure!(
        f.store().complete(&tx, &owner, &created("again")).await,
        Completion::Lost | Completion::NotOurs | Completion::RolledBack(_),
        "a second completion does not commit"
    );
    answers(f.store(), &owner.id, &created("first")).await;
}
