//! Records, as somebody may have changed them: what is replayed is what is in the record, or else an
//! error.

#![no_main]

use std::convert::Infallible;

use bytes::Bytes;
use fuzz::{Answer, block_on, layer, owner, request, status};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_idempotency_core::{
    Claim, Completion, Fingerprint, IdempotencyKey, Lease, Operation, RecordId, Store as _,
    StoredResponse,
};

/// The SHA-256 of no bytes.
const EMPTY: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

fuzz_target!(|stored: (u16, &[u8])| {
    let (number, block) = stored;
    let status = status(number);
    let answer = block_on(async {
        let layer = layer();
        let store = layer.store();
        let id = RecordId {
            owner: owner(),
            operation: Operation::from_static("fuzz"),
            key: IdempotencyKey::from_text("k").expect("a key"),
        };
        let fingerprint = Fingerprint::builder(&Method::POST)
            .path("/")
            .body_sha256(EMPTY)
            .finish();
        let claim = Claim::new(id, fingerprint);
        store.claim(&claim).await.expect("a claim");
        let tx = store.lend(Lease::claimed(claim.clone()));
        let response = StoredResponse::kept(status, Bytes::copy_from_slice(block), "body");
        let completion = store.complete(&tx, &claim, &response).await;
        assert!(matches!(completion, Completion::Committed));
        let unreached = service_fn(|_: Request<Full<Bytes>>| async {
            panic!("the record is there");
            #[expect(unreachable_code, reason = "says what a handler would answer")]
            Ok::<Response<Full<Bytes>>, Infallible>(Response::default())
        });
        Answer::of(layer.layer(unreached).oneshot(request(Bytes::new())).await).await
    });
    if !answer.is_replay() {
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_ne!(read(block), Some(()), "a block in order is replayed");
        return;
    }
    assert_eq!(read(block), Some(()), "what is replayed is in order");
    assert_eq!(answer.status, status);
    // Each line is one of the block's.
    let lines: Vec<&[u8]> = block.split(|byte| *byte == b'\n').collect();
    let is_there = |mark: &[u8], name: &str, value: &[u8]| {
        lines.iter().any(|line| {
            line.strip_prefix(mark)
                .and_then(|line| line.split_at_checked(name.len()))
                .is_some_and(|(start, end)| {
                    start.eq_ignore_ascii_case(name.as_bytes())
                        && end.strip_prefix(b": ") == Some(value)
                })
        })
    };
    for (name, value) in &answer.headers {
        assert!(name == "idempotent-replayed" || is_there(b"", name.as_str(), value.as_bytes()));
    }
    for (name, value) in answer.trailers.iter().flatten() {
        assert!(is_there(b":", name.as_str(), value.as_bytes()));
    }
});

/// Whether a block is in order: every line ends, and is a name, a colon, a blank and a value.
fn read(block: &[u8]) -> Option<()> {
    let mut rest = block;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = rest[..end].strip_prefix(b":").unwrap_or(&rest[..end]);
        let colon = line.iter().position(|byte| *byte == b':')?;
        let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let visible = |byte: &u8| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f);
        let name = &line[..colon];
        let value = line[colon + 1..].strip_prefix(b" ")?;
        if name.is_empty() || !name.iter().all(token) || !value.iter().all(visible) {
            return None;
        }
        rest = &rest[end + 1..];
    }
    Some(())
}
