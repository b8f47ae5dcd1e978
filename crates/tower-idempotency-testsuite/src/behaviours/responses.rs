//! What was answered comes back as it was.

use http::StatusCode;
use tower_idempotency_core::{ClaimOutcome, RecordState, ResourceRef, Store, StoredResponse};

use crate::Fixture;
use crate::support::{
    acquire, answer, answers, claim, created, created_with_ref, ensure, finish, lookup,
};

/// Completes a request with that response, and reads it back through both handles.
async fn comes_back<F: Fixture>(f: &F, key: &str, response: &StoredResponse) {
    let first = claim(key);
    finish(f.store(), &first, response).await;
    for store in [f.store(), &f.second().await] {
        answers(store, &first.id, response).await;
    }
}

/// R51: every byte from 0x00 to 0xFF comes back, in headers and body.
pub async fn every_byte_comes_back<F: Fixture>(f: &F) {
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let backwards: Vec<u8> = bytes.iter().rev().copied().collect();
    let response = StoredResponse::kept(StatusCode::OK, bytes, backwards);
    comes_back(f, "key", &response).await;
}

/// R51: a body of a mebibyte comes back.
pub async fn a_large_body_comes_back<F: Fixture>(f: &F) {
    let body: Vec<u8> = (0..=u8::MAX).cycle().take(1 << 20).collect();
    comes_back(f, "key", &StoredResponse::kept(StatusCode::OK, "", body)).await;
}

/// R51: empty headers and an empty body are a result that was kept.
pub async fn an_empty_result_is_kept<F: Fixture>(f: &F) {
    let response = StoredResponse::kept(StatusCode::NO_CONTENT, "", "");
    comes_back(f, "key", &response).await;
}

/// R43: a result that was not kept reads back as such, with its status.
pub async fn a_result_that_was_not_kept_reads_back_as_such<F: Fixture>(f: &F) {
    let response = StoredResponse::not_kept(StatusCode::ACCEPTED);
    comes_back(f, "key", &response).await;
}

/// R51: every kind of success comes back with its own status.
pub async fn every_status_comes_back<F: Fixture>(f: &F) {
    for code in [200, 201, 202, 203, 204, 205, 206, 207, 226, 299] {
        let status = StatusCode::from_u16(code).expect("a valid status");
        let response = StoredResponse::kept(status, "", "body");
        comes_back(f, &format!("key-{code}"), &response).await;
    }
}

/// R64: an outcome that nobody knows reads back as such, and the key never runs again.
pub async fn an_unknown_outcome_reads_back_as_such<F: Fixture>(f: &F) {
    let owner = claim("key");
    acquire(f.store(), &owner).await;
    let marked = f.store().mark_unknown(&owner).await;
    ensure!(marked, Ok(true), "an owner marks its claim");
    for store in [f.store(), &f.second().await] {
        answers(store, &owner.id, &StoredResponse::outcome_unknown()).await;
    }
    ensure!(
        lookup(f.store(), &owner.id).await.and_then(|record| record.token()),
        Some(token) if *token == owner.token,
        "a marked record keeps its token"
    );
}

/// R62: a completed record keeps its claim's token: the proof of whose commit it was.
pub async fn a_completed_record_keeps_its_token<F: Fixture>(f: &F) {
    let owner = claim("key");
    finish(f.store(), &owner, &created("first")).await;
    ensure!(
        lookup(f.store(), &owner.id).await.map(|record| record.state),
        Some(RecordState::Completed { token, fingerprint, expired: false, .. })
            if *token == owner.token && *fingerprint == owner.fingerprint,
        "a completed record keeps its token and fingerprint"
    );
}

/// R35: what the request made is recorded, and read back by a lookup.
pub async fn a_resource_reference_is_recorded<F: Fixture>(f: &F) {
    let owner = claim("key");
    let longest = "é".repeat(127);
    finish(f.store(), &owner, &created_with_ref("first", &longest)).await;
    let record = lookup(f.store(), &owner.id).await;
    ensure!(
        record.and_then(|record| record.resource_ref),
        Some(found) if *found == ResourceRef::new(&longest),
        "what the request made is recorded"
    );
    ensure!(
        answer(f.store(), &claim("key")).await,
        ClaimOutcome::Completed(stored) if stored.content == created("first").content,
        "the reference is no part of the answer"
    );
}
