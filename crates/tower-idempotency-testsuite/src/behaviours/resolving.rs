//! What became of a commit that was in doubt.

use tower_idempotency_core::{Resolution, Store};

use crate::Fixture;
use crate::support::{
    STALE_AFTER, acquire, answers, claim, created, created_with_ref, ensure, finish, lookup,
    same_answer, still_running, take_over,
};

/// R62: one's own completed record is the proof of one's commit, with its result.
pub async fn resolving_proves_a_commit<F: Fixture>(f: &F) {
    let owner = claim("key");
    let response = created_with_ref("first", "resource");
    finish(f.store(), &owner, &response).await;
    let resolution = f.second().await.resolve(&owner).await;
    ensure!(
        resolution,
        Ok(Resolution::Committed(stored)) if same_answer(stored, &response),
        "one's own completed record proves the commit"
    );
    answers(f.store(), &owner.id, &response).await;
}

/// R62: a claim that was not completed is freed.
pub async fn resolving_frees_a_claim<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let resolution = f.second().await.resolve(&owner).await;
    ensure!(
        resolution,
        Ok(Resolution::Freed),
        "a claim that was not completed is freed"
    );
    ensure!(
        lookup(f.store(), &owner.id).await,
        None,
        "a freed key has no record"
    );
}

/// R62: the record of whoever took over is no proof, whether running or completed.
pub async fn resolving_shows_the_heir<F: Fixture>(f: &F) {
    let (dead, heir) = (claim("key"), claim("key"));
    acquire(f.store(), &dead).await;
    f.age(STALE_AFTER).await;
    take_over(f.store(), &heir).await;
    let resolution = f.store().resolve(&dead).await;
    ensure!(
        resolution,
        Ok(Resolution::Other(record)) if record.token() == Some(heir.token),
        "the heir's claim is somebody else's"
    );
    still_running(f.store(), &heir).await;
    crate::support::complete(f.store(), &heir, &created("heir's")).await;
    let resolution = f.store().resolve(&dead).await;
    ensure!(
        resolution,
        Ok(Resolution::Other(record)) if record.token() == Some(heir.token),
        "the heir's result is somebody else's"
    );
}

/// R62: no record is no proof of anything.
pub async fn resolving_tells_that_there_is_none<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let freed = f.store().free(&owner).await;
    ensure!(freed, Ok(true), "a claim is freed");
    let resolution = f.store().resolve(&owner).await;
    ensure!(
        resolution,
        Ok(Resolution::Absent),
        "of a key without a record nothing is known"
    );
}
