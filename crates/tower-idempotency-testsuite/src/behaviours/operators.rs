//! For operators: erasure.

use tower_idempotency_core::{Completion, Owner, Store};

use crate::Fixture;
use crate::behaviours::tombstones::bury;
use crate::support::{
    acquire, answers, begin, claim, claim_of, created, created_with_ref, effects, ensure, finish,
    id, lookup,
};

async fn erase<F: Fixture>(f: &F, owner: &str) -> u64 {
    let owner = Owner::new(owner).expect("a valid owner");
    let erased = f.store().erase_owner(&owner).await;
    erased.expect("an owner can be erased")
}

/// Every record of an owner is erased, whatever its state, and a retry is then a new request.
pub async fn erasing_an_owner_erases_every_record<F: Fixture>(f: &F) {
    let (running, completed, buried) = (claim("running"), claim("completed"), claim("buried"));
    acquire(f.store(), &running).await;
    finish(f.store(), &completed, &created("first")).await;
    finish(f.store(), &buried, &created_with_ref("first", "resource")).await;
    bury(f, "resource").await;

    let erased = erase(f, "owner").await;
    assert_eq!(
        erased, 4,
        "every record of the owner is erased, the deletion's too"
    );
    for claim in [&running, &completed, &buried] {
        let record = lookup(f.store(), &claim.id).await;
        ensure!(record, None, "an erased record is gone");
    }
    acquire(f.store(), &claim("buried")).await;
}

/// Nobody else's records are erased.
pub async fn erasing_an_owner_spares_the_others<F: Fixture>(f: &F) {
    finish(f.store(), &claim("key"), &created("first")).await;
    let others = ["Owner", "owner ", "owner-2", "own", "%"];
    for owner in others {
        let claim = claim_of(id(owner, "publish", "key"));
        finish(f.store(), &claim, &created(owner)).await;
    }
    let erased = erase(f, "owner").await;
    assert_eq!(erased, 1, "only the owner's record is erased");
    for owner in others {
        answers(f.store(), &id(owner, "publish", "key"), &created(owner)).await;
    }
    let erased = erase(f, "nobody").await;
    assert_eq!(erased, 0, "an owner without records has none to erase");
}

/// R60: a request that is running while its owner is erased is rolled back.
pub async fn an_erased_request_is_rolled_back<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    erase(f, "owner").await;
    let tx = begin(f, &owner, "erased").await;
    ensure!(
        f.store().complete(&tx, &owner, &created("first")).await,
        Completion::Lost,
        "an erased request's completion is lost"
    );
    effects(f, "erased", 0, "an erased request's writes are rolled back").await;
}
