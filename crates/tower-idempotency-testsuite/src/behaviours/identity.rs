//! Owner, operation and key are three things, and compared byte for byte.

use std::collections::HashSet;

use tower_idempotency_core::{Claim, ClaimOutcome, Owner, RecordId, Store};

use crate::Fixture;
use crate::support::{answer, answers, claim_of, complete, created, ensure, id, lookup};

/// Asserts that each of these is a record of its own: claimed, completed and answered by itself.
async fn apart<F: Fixture>(f: &F, ids: impl IntoIterator<Item = RecordId>) {
    let claims: Vec<Claim> = ids.into_iter().map(claim_of).collect();
    let names: HashSet<_> = claims.iter().map(|claim| &claim.id).collect();
    assert_eq!(names.len(), claims.len(), "the behaviour names each once");
    for claim in &claims {
        let outcome = answer(f.store(), claim).await;
        ensure!(
            outcome,
            ClaimOutcome::Acquired { taken_over: false },
            "each identity has a record of its own, {} too",
            shown(&claim.id)
        );
    }
    for (n, claim) in claims.iter().enumerate() {
        complete(f.store(), claim, &created(&format!("result {n}"))).await;
    }
    let second = f.second().await;
    for (n, claim) in claims.iter().enumerate() {
        answers(&second, &claim.id, &created(&format!("result {n}"))).await;
    }
}

fn shown(id: &RecordId) -> String {
    let (owner, operation, key) = (id.owner.as_str(), id.operation.as_str(), id.key.as_str());
    format!("{owner:?} {operation:?} {key:?}")
}

/// R11: `a`, `A` and `a ` are three keys.
pub async fn keys_are_compared_byte_for_byte<F: Fixture>(f: &F) {
    let keys = ["a", "A", "a ", " a", "a  ", "aa"];
    apart(f, keys.map(|key| id("owner", "publish", key))).await;
}

/// R11: the keys of one owner are nothing to another.
pub async fn owners_are_apart<F: Fixture>(f: &F) {
    let shared = RecordId {
        owner: Owner::shared(),
        ..id("one", "publish", "key")
    };
    let [one, two] = ["one", "two"].map(|owner| id(owner, "publish", "key"));
    apart(f, [one, two, shared]).await;
}

/// R11: owners differ by case, by blanks, and by how a letter is composed.
pub async fn owners_are_compared_byte_for_byte<F: Fixture>(f: &F) {
    let owners = [
        "a",
        "A",
        "a ",
        "\u{e9}",
        "e\u{301}",
        "\u{65e5}\u{672c}",
        "\u{1f9ea}",
    ];
    apart(f, owners.map(|owner| id(owner, "publish", "key"))).await;
}

/// R11: one key is used for each operation by itself.
pub async fn operations_are_apart<F: Fixture>(f: &F) {
    let operations = ["publish", "remove", "POST /posts/{}"];
    apart(f, operations.map(|operation| id("owner", operation, "key"))).await;
}

/// R11: operations differ by case and by blanks.
pub async fn operations_are_compared_byte_for_byte<F: Fixture>(f: &F) {
    let operations = ["publish", "Publish", "publish "];
    apart(f, operations.map(|operation| id("owner", operation, "key"))).await;
}

/// R11: owner `a:b` with key `c` is not owner `a` with key `b:c`, whatever they are joined with.
pub async fn the_parts_of_an_identity_are_not_joined<F: Fixture>(f: &F) {
    for joint in [":", "/", "|", "-", "\u{1f}"] {
        let printable = joint != "\u{1f}";
        let joined = |left: &str, right: &str| format!("{left}{joint}{right}");
        let mut ids = vec![
            id(&joined("a", "b"), "c", "d"),
            id("a", &joined("b", "c"), "d"),
        ];
        if printable {
            ids.push(id("a", "b", &joined("c", "d")));
            ids.push(id(&joined("a", "b"), "o", "c"));
            ids.push(id("a", "o", &joined("b", "c")));
        }
        apart(f, ids).await;
    }
    apart(f, [id("ab", "o", "c"), id("a", "o", "bc")]).await;
}

/// R11: the longest identities there can be are told apart by their last byte.
pub async fn the_longest_identities_are_apart<F: Fixture>(f: &F) {
    let text = |len: usize, last: char| format!("{}{last}", "x".repeat(len - 1));
    let (owner, operation, key) = (text(255, 'a'), text(128, 'a'), text(255, 'a'));
    apart(
        f,
        [
            id(&owner, &operation, &key),
            id(&text(255, 'b'), &operation, &key),
            id(&owner, &text(128, 'b'), &key),
            id(&owner, &operation, &text(255, 'b')),
        ],
    )
    .await;
}

/// R11: what means something to a database or a pattern means nothing in a key.
pub async fn odd_characters_are_themselves<F: Fixture>(f: &F) {
    let keys = [
        "'", "''", "\"", "\\", "\\\\", "%", "_", "a%", "a_", "?", "$1", "--", ";", "{}", "NULL",
        "0", "00", "0x00", "1e3", "1000",
    ];
    apart(f, keys.map(|key| id("owner", "publish", key))).await;
}

/// R11: whoever asks for a record by another identity finds none.
pub async fn lookups_are_by_the_whole_identity<F: Fixture>(f: &F) {
    let claim = claim_of(id("owner", "publish", "key"));
    ensure!(
        lookup(f.store(), &claim.id).await,
        None,
        "there is no record yet"
    );
    f.store()
        .claim(&claim)
        .await
        .expect("a claim gets an answer");
    for other in [
        id("Owner", "publish", "key"),
        id("owner", "publish ", "key"),
        id("owner", "publish", "Key"),
    ] {
        ensure!(
            lookup(f.store(), &other).await,
            None,
            "{} has no record",
            shown(&other)
        );
    }
    let record = lookup(f.store(), &claim.id).await;
    ensure!(record, Some(_), "the claim has a record");
}
