//! What `Debug` shows of what clients trust a server with.

use std::fmt::Debug;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tower_idempotency_core::{
    Claim, ClaimOutcome, Fingerprint, IdempotencyKey, Lease, Operation, Owner, Record, RecordId,
    RecordState, Resolution, ResourceRef, ResponseBody, StoredResponse, TombstoneResource,
};

const SECRET: &str = "s3cret";

fn assert_silent(value: &impl Debug) {
    let shown = format!("{value:?} {value:#?}");
    assert!(!shown.contains(SECRET), "{shown}");
    // Bytes as a list of numbers.
    assert!(!shown.contains("115, 51, 99"), "{shown}");
}

/// R3: `Debug` shows no key, owner, token, reference, header or body.
#[test]
fn debug_is_silent() {
    let id = RecordId {
        owner: Owner::new(SECRET).unwrap(),
        operation: Operation::from_static("publish"),
        key: IdempotencyKey::from_text(SECRET).unwrap(),
    };
    let header = HeaderName::from_static("x-secret");
    let headers = HeaderMap::from_iter([(header.clone(), HeaderValue::from_static(SECRET))]);
    let builder = Fingerprint::builder(&Method::POST)
        .query(Some(SECRET))
        .bound_header(&header, &headers);
    let claim = Claim::new(id.clone(), builder.finish());
    let resource_ref = ResourceRef::new(SECRET);
    let response = StoredResponse::kept(StatusCode::OK, SECRET, SECRET)
        .with_resource_ref(Some(resource_ref.clone()));
    let state = RecordState::Completed {
        token: claim.token,
        fingerprint: claim.fingerprint.clone(),
        response: response.clone(),
        expired: false,
    };
    let record = Record {
        state,
        claimed_at: SystemTime::UNIX_EPOCH,
        resource_ref: Some(resource_ref.clone()),
    };
    assert_silent(&id);
    assert_silent(&claim);
    assert_silent(&builder);
    assert_silent(&response);
    assert_silent(&record);
    assert_silent(&record.decide(&claim.fingerprint));
    assert_silent(&ClaimOutcome::Completed(response));
    assert_silent(&Resolution::Other(record));
    assert_silent(&Lease::claimed(claim));
    assert_silent(&ResponseBody::<()>::from(Bytes::from_static(
        SECRET.as_bytes(),
    )));
    let operation = Operation::from_static("publish");
    assert_silent(&TombstoneResource {
        owner: id.owner,
        operation,
        resource_ref,
    });
}
