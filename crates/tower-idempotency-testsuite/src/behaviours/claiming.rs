//! Who may run, and what the others are told.

use tokio::task::JoinSet;
use tower_idempotency_core::{ClaimOutcome, Completion, RecordState, Store};

use crate::Fixture;
use crate::support::{
    MARGIN, PROMPT, SETTLED, STALE_AFTER, acquire, answer, answers, begin, claim, claim_of,
    complete, created, ensure, finish, id, lookup, one_winner, other_request, poll_at_most, race,
    same_answer, stops, told_to_retry, with_ttl, within,
};

/// R31, R50: the first arrival of a key gets the claim, and the record says so to everybody.
pub async fn first_claim_wins<F: Fixture>(f: &F) {
    let first = claim("key");
    acquire(f.store(), &first).await;
    for store in [f.store(), &f.second().await] {
        ensure!(
            lookup(store, &first.id).await.map(|record| record.state),
            Some(RecordState::Claimed { token, fingerprint, stale: false })
                if *token == first.token && *fingerprint == first.fingerprint,
            "the record is the first claim's"
        );
    }
}

/// R31: of 64 arrivals at once, through two handles, one gets the claim.
pub async fn racing_claims_have_one_winner<F: Fixture>(f: &F) {
    for round in 0..4 {
        let winners = race(f, || claim(&format!("key-{round}"))).await;
        one_winner(f, &winners).await;
    }
}

/// R11, R31, R33, R51, R53: arrivals that meet at the store are told apart, though their keys are the
/// same: each is answered by the record of its own owner and operation.
pub async fn claims_that_meet_are_told_apart<F: Fixture>(f: &F) {
    const KEYS: usize = 12;
    let of = |owner, operation, key: usize| claim_of(id(owner, operation, &format!("key-{key}")));
    let result = |key: usize| created(&format!("result {key}"));
    for key in 0..KEYS {
        acquire(f.store(), &of("slow", "publish", key)).await;
    }
    f.age(STALE_AFTER).await;
    for key in 0..KEYS {
        finish(f.store(), &of("owner", "publish", key), &result(key)).await;
        acquire(f.store(), &of("busy", "publish", key)).await;
    }
    let mut meeting = JoinSet::new();
    for key in 0..KEYS {
        let acquired = |taken_over| ClaimOutcome::Acquired { taken_over };
        for (claim, expected) in [
            (
                of("owner", "publish", key),
                ClaimOutcome::Completed(result(key)),
            ),
            (of("another", "publish", key), acquired(false)),
            (of("owner", "order", key), acquired(false)),
            (of("slow", "publish", key), acquired(true)),
            (of("busy", "publish", key), ClaimOutcome::InProgress),
        ] {
            let store = f.store().clone();
            meeting.spawn(async move { (answer(&store, &claim).await, claim, expected) });
        }
    }
    for (answered, claim, expected) in meeting.join_all().await {
        assert_eq!(answered, expected, "to {:?}", claim.id);
    }
}

/// R53: an arrival of a request that is running is told so, and changes nothing.
pub async fn a_running_request_is_in_progress<F: Fixture>(f: &F) {
    let first = claim("key");
    acquire(f.store(), &first).await;
    for store in [f.store(), &f.second().await] {
        ensure!(
            answer(store, &claim("key")).await,
            ClaimOutcome::InProgress,
            "a running request is in progress"
        );
    }
    complete(f.store(), &first, &created("first")).await;
}

/// R51: an arrival of a completed request gets its result.
pub async fn a_completed_request_is_answered<F: Fixture>(f: &F) {
    let first = claim("key");
    finish(f.store(), &first, &created("first")).await;
    for store in [f.store(), &f.second().await] {
        answers(store, &first.id, &created("first")).await;
    }
}

/// R52: a key that is running or completed is refused to another request, and the record stays.
pub async fn another_request_is_a_mismatch<F: Fixture>(f: &F) {
    let first = claim("key");
    acquire(f.store(), &first).await;
    ensure!(
        answer(f.store(), &other_request("key")).await,
        ClaimOutcome::Mismatch,
        "a running request's key is refused to another request"
    );
    complete(f.store(), &first, &created("first")).await;
    ensure!(
        answer(f.store(), &other_request("key")).await,
        ClaimOutcome::Mismatch,
        "a completed request's key is refused to another request"
    );
    answers(f.store(), &first.id, &created("first")).await;
}

/// R30: staleness and expiry come before mismatch: a dead claim and an expired result bind nobody.
pub async fn a_mismatch_is_judged_last<F: Fixture>(f: &F) {
    acquire(f.store(), &claim("stale")).await;
    let expired = with_ttl(claim("expired"), MARGIN);
    finish(f.store(), &expired, &created("first")).await;
    f.age(STALE_AFTER.max(MARGIN)).await;

    ensure!(
        answer(f.store(), &other_request("stale")).await,
        ClaimOutcome::Acquired { taken_over: true },
        "a stale claim is taken over by any request"
    );
    ensure!(
        answer(f.store(), &other_request("expired")).await,
        ClaimOutcome::Acquired { taken_over: false },
        "an expired result is replaced by any request"
    );
}

/// R54: a key that was freed is new: also to another request.
pub async fn a_freed_key_is_new<F: Fixture>(f: &F) {
    let first = claim("key");
    acquire(f.store(), &first).await;
    let freed = f.store().free(&first).await.expect("a claim can be freed");
    assert!(freed, "freeing one's own claim says that it was there");
    ensure!(
        lookup(f.store(), &first.id).await,
        None,
        "a freed key has no record"
    );
    acquire(&f.second().await, &other_request("key")).await;
}

/// R53: a handler's open transaction keeps no arrival of its key waiting.
pub async fn an_open_transaction_keeps_nobody_waiting<F: Fixture>(f: &F) {
    let first = claim("key");
    acquire(f.store(), &first).await;
    let tx = begin(f, &first, "effect").await;
    let (second, rival) = (f.second().await, claim("key"));
    let answered = within(
        PROMPT,
        "an arrival beside an open transaction",
        second.claim(&rival),
    );
    match answered.await {
        Ok(ClaimOutcome::InProgress) => {}
        Err(error) if error.is_unavailable() => {}
        other => panic!("an arrival beside an open transaction got {other:?}"),
    }
    ensure!(
        f.store().complete(&tx, &first, &created("first")).await,
        Completion::Committed,
        "the owner still commits"
    );
}

/// R53: a completion that is under way keeps no arrival of its key waiting, and lets none in.
///
/// The completion is stopped after each of its first steps, and goes on when the arrival has its
/// answer.
pub async fn a_completion_under_way_keeps_nobody_waiting<F: Fixture>(f: &F) {
    let second = f.second().await;
    for (round, polls) in stops() {
        let (key, response) = (format!("key-{round}"), created("first"));
        let first = claim(&key);
        acquire(f.store(), &first).await;
        let tx = begin(f, &first, &key).await;

        let mut completing = Box::pin(f.store().complete(&tx, &first, &response));
        let completed = poll_at_most(polls, completing.as_mut()).await;
        let rival = claim(&key);
        let answered = within(
            PROMPT,
            "an arrival beside a completion",
            second.claim(&rival),
        );
        match answered.await {
            Ok(ClaimOutcome::InProgress) => {}
            Ok(ClaimOutcome::Completed(stored)) if same_answer(&stored, &response) => {}
            Err(error) if error.is_unavailable() => {}
            other => panic!("an arrival beside a completion got {other:?}"),
        }
        let completed = match completed {
            Some(completed) => completed,
            None => completing.await,
        };
        ensure!(completed, Completion::Committed, "the owner still commits");
        answers(&second, &first.id, &response).await;
    }
}

/// R57: whoever is told to come again was given nothing: a busy store leaves no claim behind.
///
/// A store with one writer at a time may let other keys wait for it, until its patience ends.
pub async fn an_arrival_that_was_turned_away_holds_nothing<F: Fixture>(f: &F) {
    let first = claim("key");
    acquire(f.store(), &first).await;
    let tx = begin(f, &first, "effect").await;
    let second = f.second().await;
    let other = claim("other");
    match within(
        SETTLED,
        "a claim beside an open transaction",
        second.claim(&other),
    )
    .await
    {
        Ok(ClaimOutcome::Acquired { taken_over: false }) => {}
        Err(error) if told_to_retry(&error) => ensure!(
            lookup(&second, &other.id).await,
            None,
            "an arrival that was told to come again has no record"
        ),
        outcome => panic!("a claim of another key beside an open transaction got {outcome:?}"),
    }
    let _ = f.store().rollback(&tx).await;
}
