//! The fingerprint: a preimage can be read back, so that requests that differ have preimages that do.

#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use fuzz::{Line, headers};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Method};
use libfuzzer_sys::fuzz_target;
use tower_idempotency_core::{Fingerprint, FingerprintBuilder};

#[derive(Debug, Arbitrary)]
struct Fields {
    method: String,
    path: Option<String>,
    query: Option<String>,
    content_type: Option<Vec<u8>>,
    content_encoding: Option<Vec<u8>>,
    bound: Vec<Line>,
    body: Result<[u8; 32], [u8; 32]>,
}

/// As protocol.md states them: names and values.
type Read = BTreeMap<Vec<u8>, Vec<u8>>;

fuzz_target!(|requests: (Fields, Fields)| {
    let [Some(one), Some(other)] = [&requests.0, &requests.1].map(expected) else {
        return;
    };
    let [first, second] = [&requests.0, &requests.1].map(|fields| builder(fields).preimage());
    assert_eq!(read(&first).as_ref(), Some(&one), "a preimage reads back");
    assert_eq!(
        read(&second).as_ref(),
        Some(&other),
        "a preimage reads back"
    );
    assert_eq!(first == second, one == other, "different requests differ");
    let fingerprint = builder(&requests.0).finish();
    assert_eq!(fingerprint.as_str().len(), Fingerprint::LEN);
    assert_eq!(builder(&requests.1).finish() == fingerprint, one == other);
});

fn method(fields: &Fields) -> Option<Method> {
    Method::from_bytes(fields.method.as_bytes()).ok()
}

fn builder(fields: &Fields) -> FingerprintBuilder {
    let mut builder =
        Fingerprint::builder(&method(fields).unwrap_or_default()).query(fields.query.as_deref());
    if let Some(path) = &fields.path {
        builder = builder.path(path);
    }
    for (name, value) in [
        (CONTENT_TYPE, &fields.content_type),
        (CONTENT_ENCODING, &fields.content_encoding),
    ] {
        if let Some(value) = value {
            builder = builder.content_header(&name, value);
        }
    }
    let bound = headers(&fields.bound);
    for name in bound.keys() {
        builder = builder.bound_header(name, &bound);
    }
    match fields.body {
        Ok(digest) => builder.body_sha256(digest),
        Err(digest) => builder.body_custom_sha256(digest),
    }
}

/// What a request's preimage must hold. `None` where HTTP has no such request.
fn expected(fields: &Fields) -> Option<Read> {
    let mut read = Read::new();
    let mut put = |name: &str, value: &[u8]| read.insert(name.into(), value.into());
    put("method", method(fields)?.as_str().as_bytes());
    if let Some(path) = &fields.path {
        put(
            "path",
            if path.is_empty() {
                b"/"
            } else {
                path.as_bytes()
            },
        );
    }
    if let Some(query) = &fields.query {
        put("query", query.as_bytes());
    }
    if let Some(value) = &fields.content_type {
        put("content-type", value.trim_ascii());
    }
    if let Some(value) = &fields.content_encoding {
        put("content-encoding", value.trim_ascii());
    }
    match &fields.body {
        Ok(digest) => put("body-sha256", digest),
        Err(digest) => put("body-custom-sha256", digest),
    };
    let bound = headers(&fields.bound);
    for name in bound.keys() {
        read.insert(format!("h:{name}").into_bytes(), value(&bound, name));
    }
    Some(read)
}

/// One line as it is; several behind their lengths.
fn value(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let lines: Vec<_> = headers.get_all(name).iter().collect();
    if let [line] = lines[..] {
        return line.as_bytes().to_vec();
    }
    let prefixed = lines.iter().flat_map(|line| {
        let length = (line.len() as u64).to_be_bytes();
        [&length[..], line.as_bytes()].concat()
    });
    prefixed.collect()
}

/// Reads a preimage. `None` where it is none.
fn read(preimage: &[u8]) -> Option<Read> {
    let rest = preimage.strip_prefix(b"hs1\0")?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut read = Read::new();
    let mut previous: Option<&[u8]> = None;
    for _ in 0..u32::from_be_bytes(*count) {
        let (name, tail) = take(rest)?;
        let (value, tail) = take(tail)?;
        rest = tail;
        if previous.is_some_and(|previous| previous >= name) {
            return None;
        }
        previous = Some(name);
        read.insert(name.into(), value.into());
    }
    rest.is_empty().then_some(read)
}

fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)
}
