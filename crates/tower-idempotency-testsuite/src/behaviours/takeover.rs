//! A claim lives for a time, and whoever outlived it changes nothing any more.

use std::time::Duration;

use tower_idempotency_core::{
    Claim, ClaimOutcome, Completion, Lease, RecordState, Store, StoreError,
};

use crate::Fixture;
use crate::support::{
    MARGIN, STALE_AFTER, acquire, answer, answers, begin, claim, complete, created, effects,
    ensure, lookup, one_winner, race, still_running, take_over, told_to_retry,
};

/// R33: a claim is alive until its time is over.
pub async fn a_claim_lives_until_its_time_is_over<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    f.age(STALE_AFTER - MARGIN).await;
    ensure!(
        answer(&f.second().await, &claim("key")).await,
        ClaimOutcome::InProgress,
        "a claim is alive before its time is over"
    );
    still_running(f.store(), &owner).await;
}

/// R33: when its time is over, a claim is stale, and the next arrival takes it over.
pub async fn a_stale_claim_is_taken_over<F: Fixture>(f: &F) {
    let dead = claim("key");
    acquire(f.store(), &dead).await;
    f.age(STALE_AFTER).await;
    ensure!(
        lookup(f.store(), &dead.id).await.map(|record| record.state),
        Some(RecordState::Claimed { token, stale: true, .. }) if *token == dead.token,
        "a claim is stale when its time is over"
    );
    let claimed_at = lookup(f.store(), &dead.id)
        .await
        .map(|record| record.claimed_at);
    let heir = claim("key");
    take_over(&f.second().await, &heir).await;
    still_running(f.store(), &heir).await;
    ensure!(
        lookup(f.store(), &heir.id).await.map(|record| record.claimed_at),
        at if *at >= claimed_at.map(|at| at + STALE_AFTER),
        "a claim that was taken over was claimed then"
    );
    complete(f.store(), &heir, &created("heir's")).await;
}

/// R33: how long a claim lives is its owner's setting, not that of whoever arrives.
pub async fn staleness_is_the_owners_setting<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    f.age(MARGIN).await;
    let impatient = Claim {
        stale_after: Duration::from_secs(1),
        ..claim("key")
    };
    ensure!(
        answer(f.store(), &impatient).await,
        ClaimOutcome::InProgress,
        "an impatient arrival does not shorten a claim"
    );
}

/// R33: of 64 arrivals at a stale claim, one takes it over.
pub async fn racing_takeovers_have_one_winner<F: Fixture>(f: &F) {
    for round in 0..4 {
        let key = format!("key-{round}");
        acquire(f.store(), &claim(&key)).await;
        f.age(STALE_AFTER).await;
        let winners = race(f, || claim(&key)).await;
        one_winner(f, &winners).await;
    }
}

/// R32, R60: who was taken over completes nothing: the outcome is `Lost`, the writes are rolled
/// back.
pub async fn the_dead_owner_changes_nothing<F: Fixture>(f: &F) {
    let (dead, heir) = (claim("key"), claim("key"));
    acquire(f.store(), &dead).await;
    f.age(STALE_AFTER).await;
    let second = f.second().await;
    take_over(&second, &heir).await;

    let tx = begin(f, &dead, "dead owner's").await;
    ensure!(
        f.store()
            .complete(&tx, &dead, &created("dead owner's"))
            .await,
        Completion::Lost,
        "the dead owner's completion is lost"
    );
    effects(
        f,
        "dead owner's",
        0,
        "the dead owner's writes are rolled back",
    )
    .await;
    let freed = f.store().free(&dead).await;
    ensure!(freed, Ok(false), "the dead owner frees nothing");
    complete(&second, &heir, &created("heir's")).await;
    answers(f.store(), &heir.id, &created("heir's")).await;
}

/// R32, R60: the dead owner changes nothing either when the heir has completed before.
pub async fn the_dead_owner_comes_after_the_heir<F: Fixture>(f: &F) {
    let (dead, heir) = (claim("key"), claim("key"));
    acquire(f.store(), &dead).await;
    f.age(STALE_AFTER).await;
    let second = f.second().await;
    take_over(&second, &heir).await;
    complete(&second, &heir, &created("heir's")).await;

    let tx = begin(f, &dead, "dead owner's").await;
    ensure!(
        f.store()
            .complete(&tx, &dead, &created("dead owner's"))
            .await,
        Completion::Lost,
        "the dead owner's completion is lost"
    );
    effects(
        f,
        "dead owner's",
        0,
        "the dead owner's writes are rolled back",
    )
    .await;
    answers(f.store(), &heir.id, &created("heir's")).await;
}

/// R60: an owner who wrote before the take-over commits exactly when nobody took over.
///
/// A store with one writer at a time may refuse the take-over for as long as the owner's
/// transaction is open.
pub async fn writes_before_the_takeover_are_rolled_back<F: Fixture>(f: &F) {
    let (owner, rival) = (claim("key"), claim("key"));
    acquire(f.store(), &owner).await;
    f.age(STALE_AFTER).await;
    let tx = begin(f, &owner, "owner's").await;
    let outcome = f.second().await.claim(&rival).await;
    let completion = f.store().complete(&tx, &owner, &created("owner's")).await;
    one_of_two(f, "owner's", &outcome, &completion).await;
    if let Ok(ClaimOutcome::Acquired { .. }) = outcome {
        ensure!(
            completion,
            Completion::Lost,
            "the completion of an owner who wrote before the take-over is lost"
        );
        still_running(f.store(), &rival).await;
    }
}

/// R33, R60: a take-over and a late completion at once: one of the two, never both.
pub async fn a_takeover_excludes_a_late_completion<F: Fixture>(f: &F) {
    let second = f.second().await;
    for round in 0..24 {
        let key = format!("key-{round}");
        let (owner, rival) = (claim(&key), claim(&key));
        acquire(f.store(), &owner).await;
        f.age(STALE_AFTER).await;
        let tx = begin(f, &owner, &key).await;
        let response = created("owner's");
        let (outcome, completion) = tokio::join!(
            second.claim(&rival),
            f.store().complete(&tx, &owner, &response)
        );
        one_of_two(f, &key, &outcome, &completion).await;
    }
}

/// R33, R34: a take-over and a late renewal at once: whoever is told that the claim lives has it.
pub async fn a_takeover_excludes_a_late_renewal<F: Fixture>(f: &F) {
    let second = f.second().await;
    for round in 0..24 {
        let key = format!("key-{round}");
        let (owner, rival) = (claim(&key), claim(&key));
        acquire(f.store(), &owner).await;
        f.age(STALE_AFTER).await;
        let (outcome, renewed) = tokio::join!(second.claim(&rival), f.store().renew(&owner));
        let renewed = match renewed {
            Ok(renewed) => renewed,
            Err(error) if told_to_retry(&error) => false,
            Err(error) => panic!("a renewal failed: {error:?}"),
        };
        assert!(
            !(taken_over(&outcome) && renewed),
            "a claim is either taken over or renewed: it was both"
        );
    }
}

/// Whether an arrival at a stale claim got it.
fn taken_over(outcome: &Result<ClaimOutcome, StoreError>) -> bool {
    match outcome {
        Ok(ClaimOutcome::Acquired { taken_over: true }) => true,
        Ok(ClaimOutcome::InProgress | ClaimOutcome::Completed(_)) => false,
        Err(error) if told_to_retry(error) => false,
        other => panic!("an arrival at a stale claim got {other:?}"),
    }
}

async fn one_of_two<F: Fixture>(
    f: &F,
    what: &str,
    outcome: &Result<ClaimOutcome, StoreError>,
    completion: &Completion,
) {
    let committed = matches!(completion, Completion::Committed);
    assert!(
        !(taken_over(outcome) && committed),
        "a claim is either taken over or completed: it was both"
    );
    let count = u64::from(committed);
    effects(
        f,
        what,
        count,
        "the owner's writes stand as its record does",
    )
    .await;
}

/// R33: an owner who is late, but whom nobody took over, commits.
pub async fn a_slow_owner_commits<F: Fixture>(f: &F) {
    let slow = claim("key");
    acquire(f.store(), &slow).await;
    f.age(2 * STALE_AFTER).await;
    let tx = begin(f, &slow, "slow owner's").await;
    ensure!(
        f.store()
            .complete(&tx, &slow, &created("slow owner's"))
            .await,
        Completion::Committed,
        "a slow owner whom nobody took over commits"
    );
    effects(f, "slow owner's", 1, "its writes are committed").await;
}

/// R34: a renewed claim lives for another `stale_after` from then on.
pub async fn renewal_moves_staleness<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    f.age(STALE_AFTER - MARGIN).await;
    let renewed = f.store().renew(&owner).await;
    ensure!(renewed, Ok(true), "an owner renews its claim");
    f.age(STALE_AFTER - MARGIN).await;
    ensure!(
        answer(f.store(), &claim("key")).await,
        ClaimOutcome::InProgress,
        "a renewed claim is alive"
    );
    f.age(MARGIN).await;
    take_over(f.store(), &claim("key")).await;
}

/// R32, R34: renewal tells an owner that it was taken over, and leaves the heir's claim alone.
pub async fn renewal_is_lost_with_the_claim<F: Fixture>(f: &F) {
    let (dead, heir) = (claim("key"), claim("key"));
    acquire(f.store(), &dead).await;
    f.age(STALE_AFTER).await;
    take_over(f.store(), &heir).await;
    let renewed = f.store().renew(&dead).await;
    ensure!(renewed, Ok(false), "who was taken over renews nothing");
    still_running(f.store(), &heir).await;
}

/// R32, R60: a released request may still be running; it is then rolled back, also when the key is
/// free.
pub async fn a_released_request_is_rolled_back<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let released = f.store().release(&owner.id, &owner.token).await;
    ensure!(released, Ok(true), "a claim is released");
    let tx = f.store().lend(Lease::claimed(owner.clone()));
    f.write(&tx, "released").await.expect("a handler can write");
    ensure!(
        f.store().complete(&tx, &owner, &created("released")).await,
        Completion::Lost,
        "a released request's completion is lost"
    );
    effects(
        f,
        "released",
        0,
        "a released request's writes are rolled back",
    )
    .await;
    acquire(f.store(), &claim("key")).await;
}
