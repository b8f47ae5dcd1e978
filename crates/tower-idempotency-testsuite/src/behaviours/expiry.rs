//! Results that are kept for a time, and what the purge may delete.

use std::panic::resume_unwind;
use std::time::Duration;

use tokio::task::JoinSet;
use tower_idempotency_core::{ClaimOutcome, Completion, Lease, RecordState, Store};

use crate::Fixture;
use crate::behaviours::tombstones::bury;
use crate::support::{
    MARGIN, STALE_AFTER, YEARS, acquire, answer, answers, begin, claim, complete, created,
    created_with_ref, ensure, finish, insist, lookup, one_winner, race, still_running, with_ttl,
};

const TTL: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

async fn purge<F: Fixture>(f: &F, limit: u32) -> u64 {
    f.store().purge(limit).await.expect("records can be purged")
}

/// R36: a result is answered until its ttl is over, counted from the completion.
pub async fn a_result_lives_until_its_ttl_is_over<F: Fixture>(f: &F) {
    let owner = with_ttl(claim("key"), TTL);
    acquire(f.store(), &owner).await;
    f.age(STALE_AFTER - MARGIN).await;
    complete(f.store(), &owner, &created("first")).await;
    f.age(TTL - MARGIN).await;
    answers(f.store(), &owner.id, &created("first")).await;
}

/// R36: when its ttl is over, a result is replaced by the next arrival, with no purge having run.
pub async fn an_expired_result_is_replaced<F: Fixture>(f: &F) {
    let owner = with_ttl(claim("key"), TTL);
    // With all that a record can have: nothing of it may be left.
    finish(f.store(), &owner, &created_with_ref("first", "post/1")).await;
    f.age(TTL).await;
    ensure!(
        lookup(f.store(), &owner.id)
            .await
            .map(|record| record.state),
        Some(RecordState::Completed { expired: true, .. }),
        "a result is expired when its ttl is over"
    );
    let next = claim("key");
    ensure!(
        answer(f.store(), &next).await,
        ClaimOutcome::Acquired { taken_over: false },
        "an expired result is replaced"
    );
    still_running(f.store(), &next).await;
    let made = lookup(f.store(), &next.id)
        .await
        .and_then(|record| record.resource_ref);
    assert_eq!(made, None, "a replaced result's resource is forgotten");
    complete(f.store(), &next, &created("second")).await;
    answers(f.store(), &owner.id, &created("second")).await;
}

/// R31, R36: of 64 arrivals at an expired result, one replaces it.
pub async fn racing_replacements_have_one_winner<F: Fixture>(f: &F) {
    for round in 0..4 {
        let key = format!("key-{round}");
        finish(f.store(), &with_ttl(claim(&key), TTL), &created("first")).await;
        f.age(TTL).await;
        let winners = race(f, || claim(&key)).await;
        one_winner(f, &winners).await;
    }
}

/// R36, R37: a result without ttl is answered for ever, and never purged.
pub async fn a_result_without_ttl_is_kept_for_ever<F: Fixture>(f: &F) {
    let owner = claim("key");
    finish(f.store(), &owner, &created("first")).await;
    f.age(YEARS).await;
    let purged = purge(f, 100).await;
    assert_eq!(purged, 0, "a result without ttl is not purged");
    answers(f.store(), &owner.id, &created("first")).await;
}

/// R64: an outcome that nobody knows never expires, whatever the ttl: an effect may be there.
pub async fn an_unknown_outcome_never_expires<F: Fixture>(f: &F) {
    let owner = with_ttl(claim("key"), TTL);
    acquire(f.store(), &owner).await;
    let tx = begin(f, &owner, "by hand").await;
    f.end_by_hand(&tx).await.expect("a handler can end it");
    let _ = f.store().rollback(&tx).await;
    let marked = f.store().mark_unknown(&owner).await;
    ensure!(marked, Ok(true), "an owner marks its claim");
    f.age(YEARS).await;
    let purged = purge(f, 100).await;
    assert_eq!(purged, 0, "an unknown outcome is not purged");
    ensure!(
        answer(f.store(), &claim("key")).await,
        ClaimOutcome::Completed(stored) if stored.content.is_none(),
        "an unknown outcome never expires"
    );
}

/// R37: the purge deletes expired results, and leaves those that are not.
pub async fn purge_deletes_expired_results<F: Fixture>(f: &F) {
    let (old, young) = (
        with_ttl(claim("old"), TTL),
        with_ttl(claim("young"), 2 * TTL),
    );
    for owner in [&old, &young] {
        finish(f.store(), owner, &created("first")).await;
    }
    f.age(TTL).await;
    let purged = purge(f, 100).await;
    assert_eq!(purged, 1, "the purge deletes the expired result");
    ensure!(
        lookup(f.store(), &old.id).await,
        None,
        "the expired result is gone"
    );
    answers(f.store(), &young.id, &created("first")).await;
}

/// R37: the purge deletes claims that have been stale for 30 days.
pub async fn purge_deletes_claims_long_stale<F: Fixture>(f: &F) {
    let dead = claim("key");
    acquire(f.store(), &dead).await;
    f.age(STALE_AFTER + 30 * DAY).await;
    let purged = purge(f, 100).await;
    assert_eq!(purged, 1, "the purge deletes a claim stale for 30 days");
    ensure!(lookup(f.store(), &dead.id).await, None, "the claim is gone");
}

/// R37: the purge never deletes a live claim, nor one that went stale lately.
pub async fn purge_spares_live_claims<F: Fixture>(f: &F) {
    let stale = claim("stale");
    acquire(f.store(), &stale).await;
    f.age(STALE_AFTER + 30 * DAY - MARGIN).await;
    let live = with_ttl(claim("live"), TTL);
    acquire(f.store(), &live).await;
    let purged = purge(f, 100).await;
    assert_eq!(purged, 0, "the purge spares claims");
    still_running(f.store(), &live).await;
    ensure!(
        lookup(f.store(), &stale.id).await.and_then(|record| record.token()),
        Some(token) if *token == stale.token,
        "a claim that went stale lately is spared"
    );
}

/// R37: a claim that was renewed is a live one, however old it is.
pub async fn purge_spares_renewed_claims<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    f.age(31 * DAY + STALE_AFTER).await;
    let renewed = f.store().renew(&owner).await;
    ensure!(
        renewed,
        Ok(true),
        "an owner whom nobody took over renews its claim"
    );
    let purged = purge(f, 100).await;
    assert_eq!(purged, 0, "the purge spares a renewed claim");
    still_running(f.store(), &owner).await;
}

/// R37: the purge never deletes a tombstone, also of a record that had a ttl.
pub async fn purge_spares_tombstones<F: Fixture>(f: &F) {
    let owner = with_ttl(claim("key"), TTL);
    finish(f.store(), &owner, &created_with_ref("first", "resource")).await;
    bury(f, "resource").await;
    f.age(YEARS).await;
    purge(f, 100).await;
    ensure!(
        lookup(f.store(), &owner.id)
            .await
            .map(|record| record.state),
        Some(RecordState::Tombstone),
        "the purge spares tombstones"
    );
}

/// R37: the purge deletes no more than its limit, and says how many: fewer means that there are no
/// more.
pub async fn purge_respects_its_limit<F: Fixture>(f: &F) {
    for n in 0..5 {
        let owner = with_ttl(claim(&format!("key-{n}")), TTL);
        finish(f.store(), &owner, &created("first")).await;
    }
    f.age(TTL).await;
    purges_two_at_a_time(f, "results").await;
    for n in 0..5 {
        acquire(f.store(), &claim(&format!("stale-{n}"))).await;
    }
    f.age(YEARS).await;
    purges_two_at_a_time(f, "claims").await;
}

/// Of five that may be purged.
async fn purges_two_at_a_time<F: Fixture>(f: &F, what: &str) {
    let mut purged = Vec::new();
    for _ in 0..4 {
        purged.push(purge(f, 2).await);
    }
    assert_eq!(
        purged,
        [2, 2, 1, 0],
        "the purge of {what} respects its limit"
    );
}

/// R37: an expired record that was replaced meanwhile is not deleted, whether running or completed.
///
/// A purge takes the oldest first, so the replacements begin with the youngest.
pub async fn purge_spares_replaced_records<F: Fixture>(f: &F) {
    const KEYS: usize = 64;
    const REPLACERS: usize = 4;

    let second = f.second().await;
    for round in 0..16 {
        let key = |n: usize| format!("key-{round}-{n}");
        for n in 0..KEYS {
            finish(f.store(), &with_ttl(claim(&key(n)), TTL), &created("first")).await;
        }
        f.age(TTL).await;

        let keys_of = |replacer: usize| {
            let youngest_first = (0..KEYS).rev();
            let keys = youngest_first.skip(replacer).step_by(REPLACERS).map(key);
            keys.collect::<Vec<_>>()
        };
        let mut replacers = JoinSet::new();
        for replacer in 1..REPLACERS {
            replacers.spawn(replace(f.store().clone(), keys_of(replacer)));
        }
        let purging = async {
            for _ in 0..4 {
                let purged = insist("purging", || second.purge(1000)).await;
                assert!(purged <= KEYS as u64, "records are purged once");
                // A store that is done at once would never let the replacements run.
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(purging, replace(f.store().clone(), keys_of(0)));
        while let Some(replaced) = replacers.join_next().await {
            if let Err(failed) = replaced {
                resume_unwind(failed.into_panic());
            }
        }
        for n in 0..KEYS {
            ensure!(
                answer(f.store(), &claim(&key(n))).await,
                ClaimOutcome::Completed(stored) if stored.content == created("second").content,
                "a replaced record survives the purge"
            );
        }
    }
}

async fn replace<S: Store>(store: S, keys: Vec<String>) {
    for key in keys {
        let next = claim(&key);
        ensure!(
            insist("replacing", || store.claim(&next)).await,
            ClaimOutcome::Acquired { taken_over: false },
            "an expired result is replaced beside the purge"
        );
        let completion = loop {
            let tx = store.lend(Lease::claimed(next.clone()));
            match store.complete(&tx, &next, &created("second")).await {
                // Where transactions are serializable, the purge may be the one that wins.
                Completion::RolledBack(error) if error.is_conflict() => {}
                completion => break completion,
            }
        };
        ensure!(
            completion,
            Completion::Committed,
            "a replacement is completed beside the purge"
        );
    }
}
