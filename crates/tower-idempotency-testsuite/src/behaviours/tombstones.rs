//! What was deleted stays deleted: its key answers so for ever.

use tower_idempotency_core::{
    Claim, ClaimOutcome, Completion, Lease, Operation, Owner, RecordId, RecordState, ResourceRef,
    Rollback, Store, TombstoneResource,
};

use crate::Fixture;
use crate::support::{
    MARGIN, PROMPT, YEARS, acquire, answer, answers, claim, claim_of, created, created_with_ref,
    effects, ensure, finish, id, lookup, other_request, with_ttl, within,
};

fn resource(owner: &str, operation: &str, resource_ref: &str) -> TombstoneResource {
    TombstoneResource {
        owner: Owner::new(owner).expect("a valid owner"),
        operation: Operation::new(operation).expect("a valid operation"),
        resource_ref: ResourceRef::new(resource_ref),
    }
}

/// Begins the deletion of a resource: the claim and transaction of the request that deletes, and
/// how many records it buried.
async fn deleting<F: Fixture>(
    f: &F,
    key: &str,
    resource: &TombstoneResource,
) -> (Claim, <F::Store as Store>::Tx, u64) {
    let deletion = claim_of(id("owner", "remove", key));
    acquire(f.store(), &deletion).await;
    let tx = f.store().lend(Lease::claimed(deletion.clone()));
    f.write(&tx, key).await.expect("a handler can write");
    let buried = f.store().tombstone_resource(&tx, resource).await;
    (deletion, tx, buried.expect("a resource can be buried"))
}

async fn delete<F: Fixture>(f: &F, key: &str, resource: &TombstoneResource) -> u64 {
    let (deletion, tx, buried) = deleting(f, key, resource).await;
    ensure!(
        f.store()
            .complete(&tx, &deletion, &created("deleted"))
            .await,
        Completion::Committed,
        "a deletion commits"
    );
    buried
}

/// Deletes a resource that one request of [`claim`]'s owner and operation made.
pub(super) async fn bury<F: Fixture>(f: &F, resource_ref: &str) {
    let buried = delete(f, "deletion", &resource("owner", "publish", resource_ref)).await;
    assert_eq!(buried, 1, "the one record of what is deleted is buried");
}

async fn is_buried<F: Fixture>(f: &F, id: &RecordId) -> bool {
    let record = lookup(f.store(), id).await.expect("a record");
    matches!(record.state, RecordState::Tombstone)
}

/// R35: every completed record with that reference is buried, and the number said.
pub async fn a_deletion_buries_and_counts<F: Fixture>(f: &F) {
    for key in ["one", "two"] {
        finish(f.store(), &claim(key), &created_with_ref(key, "resource")).await;
    }
    let resource = resource("owner", "publish", "resource");
    let buried = delete(f, "first", &resource).await;
    assert_eq!(buried, 2, "every record of what is deleted is buried");
    for key in ["one", "two"] {
        ensure!(
            answer(&f.second().await, &claim(key)).await,
            ClaimOutcome::Tombstone,
            "a buried record answers so"
        );
    }
    let buried = delete(f, "second", &resource).await;
    assert_eq!(buried, 0, "what is buried is not buried again");
}

/// R35: only the records of that owner, operation and reference are buried, compared byte for byte.
pub async fn a_deletion_buries_nothing_else<F: Fixture>(f: &F) {
    let bystanders = [
        ("stranger", "publish", "resource"),
        ("Owner", "publish", "resource"),
        ("owner", "Publish", "resource"),
        ("owner", "archive", "resource"),
        ("owner", "publish", "Resource"),
        ("owner", "publish", "resource "),
        ("owner", "publish", "resource-2"),
    ];
    for (owner, operation, resource_ref) in bystanders {
        let made = claim_of(id(owner, operation, resource_ref));
        finish(f.store(), &made, &created_with_ref("made", resource_ref)).await;
    }
    finish(f.store(), &claim("without"), &created("made")).await;
    finish(
        f.store(),
        &claim("made"),
        &created_with_ref("made", "resource"),
    )
    .await;

    bury(f, "resource").await;
    for (owner, operation, resource_ref) in bystanders {
        let id = id(owner, operation, resource_ref);
        assert!(
            !is_buried(f, &id).await,
            "nothing else is buried: {owner:?}, {operation:?}, {resource_ref:?} was"
        );
        answers(f.store(), &id, &created("made")).await;
    }
    assert!(
        !is_buried(f, &claim("without").id).await,
        "a record without a reference is not buried"
    );
}

/// R35: a claim is never buried: what it makes is not known before it is completed.
pub async fn a_deletion_buries_no_claim<F: Fixture>(f: &F) {
    let running = claim("running");
    acquire(f.store(), &running).await;
    let buried = delete(f, "deletion", &resource("owner", "publish", "resource")).await;
    assert_eq!(buried, 0, "a claim is not buried");
    crate::support::still_running(f.store(), &running).await;
}

/// R35: a request that buries what it makes anew is not buried itself: its own record comes after.
pub async fn a_request_does_not_bury_itself<F: Fixture>(f: &F) {
    finish(
        f.store(),
        &claim("old"),
        &created_with_ref("old", "resource"),
    )
    .await;
    let replacing = claim("new");
    acquire(f.store(), &replacing).await;
    let tx = f.store().lend(Lease::claimed(replacing.clone()));
    let resource = resource("owner", "publish", "resource");
    let buried = f.store().tombstone_resource(&tx, &resource).await;
    ensure!(buried, Ok(1), "the earlier record is buried");
    let response = created_with_ref("new", "resource");
    ensure!(
        f.store().complete(&tx, &replacing, &response).await,
        Completion::Committed,
        "a replacement commits"
    );
    assert!(
        is_buried(f, &claim("old").id).await,
        "the earlier record is buried"
    );
    answers(f.store(), &replacing.id, &response).await;
}

/// R35: the tombstone stands or falls with the deleting handler's transaction, and keeps nobody
/// waiting.
pub async fn a_tombstone_is_rolled_back_with_its_deletion<F: Fixture>(f: &F) {
    let made = claim("made");
    finish(f.store(), &made, &created_with_ref("made", "resource")).await;
    let resource = resource("owner", "publish", "resource");
    let (_, tx, buried) = deleting(f, "deletion", &resource).await;
    assert_eq!(buried, 1, "the record of what is deleted is buried");
    assert!(
        !is_buried(f, &made.id).await,
        "a tombstone is not there before its deletion commits"
    );
    let (second, arrival) = (f.second().await, claim("made"));
    let answered = within(
        PROMPT,
        "an arrival beside an uncommitted deletion",
        second.claim(&arrival),
    );
    ensure!(
        answered.await,
        Ok(ClaimOutcome::Completed(_)),
        "a key is answered with its result until the deletion commits"
    );
    ensure!(
        f.store().rollback(&tx).await,
        Rollback::RolledBack,
        "a deletion is rolled back"
    );
    effects(f, "deletion", 0, "a rolled back deletion did nothing").await;
    assert!(
        !is_buried(f, &made.id).await,
        "a tombstone is rolled back with its deletion"
    );
    answers(f.store(), &made.id, &created("made")).await;
}

/// R8, R35: a request without a record buries too, when it commits.
pub async fn an_unclaimed_request_buries<F: Fixture>(f: &F) {
    let made = claim("made");
    finish(f.store(), &made, &created_with_ref("made", "resource")).await;
    let tx = f.store().lend(Lease::unclaimed());
    let resource = resource("owner", "publish", "resource");
    let buried = f.store().tombstone_resource(&tx, &resource).await;
    ensure!(buried, Ok(1), "the record of what is deleted is buried");
    ensure!(
        f.store().commit(&tx).await,
        Completion::Committed,
        "an unclaimed request commits"
    );
    assert!(is_buried(f, &made.id).await, "it is buried with the commit");
}

/// R35: a tombstone answers so to every request, whatever it asks.
pub async fn a_tombstone_answers_any_request<F: Fixture>(f: &F) {
    finish(
        f.store(),
        &claim("made"),
        &created_with_ref("made", "resource"),
    )
    .await;
    bury(f, "resource").await;
    for arrival in [claim("made"), other_request("made")] {
        ensure!(
            answer(f.store(), &arrival).await,
            ClaimOutcome::Tombstone,
            "a tombstone answers any request"
        );
    }
}

/// R35: a tombstone keeps neither fingerprint nor result nor token, only what it is for.
pub async fn a_tombstone_keeps_no_result<F: Fixture>(f: &F) {
    let made = claim("made");
    finish(f.store(), &made, &created_with_ref("made", "resource")).await;
    bury(f, "resource").await;
    let record = lookup(f.store(), &made.id).await.expect("a record");
    ensure!(
        &record.state,
        RecordState::Tombstone,
        "a tombstone keeps no result"
    );
    ensure!(
        &record.resource_ref,
        Some(kept) if *kept == ResourceRef::new("resource"),
        "a tombstone keeps its reference"
    );
    let resolution = f.store().resolve(&made).await;
    ensure!(
        resolution,
        Ok(tower_idempotency_core::Resolution::Other(record)) if record.token().is_none(),
        "a tombstone is no proof of a commit"
    );
}

/// R35: a tombstone never expires, also of a record that had a ttl, and no token frees it.
pub async fn a_tombstone_never_expires<F: Fixture>(f: &F) {
    let made = with_ttl(claim("made"), MARGIN);
    finish(f.store(), &made, &created_with_ref("made", "resource")).await;
    bury(f, "resource").await;
    f.age(YEARS).await;
    for (step, changed) in [
        ("freed", f.store().free(&made).await),
        ("released", f.store().release(&made.id, &made.token).await),
        ("renewed", f.store().renew(&made).await),
        ("marked", f.store().mark_unknown(&made).await),
    ] {
        ensure!(changed, Ok(false), "a tombstone is not {step}");
    }
    ensure!(
        answer(f.store(), &claim("made")).await,
        ClaimOutcome::Tombstone,
        "a tombstone never expires"
    );
}
