use http::{HeaderValue, header};
use serde_json::Value;

use super::*;

/// Latin-1: one character is one byte.
fn bytes(text: &str) -> Vec<u8> {
    text.chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect()
}

fn build(input: &Value) -> FingerprintBuilder {
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    let method = Method::from_bytes(text("method").unwrap().as_bytes()).unwrap();
    let body = bytes(text("body").unwrap_or_default());
    let canonical = text("canonical").map(bytes);
    let builder = Fingerprint::builder(&method)
        .path(text("path").unwrap())
        .query(text("query"));
    let mut builder = match &canonical {
        Some(canonical) => builder.body_custom_sha256(Sha256::digest(canonical).into()),
        None => builder.body_sha256(Sha256::digest(&body).into()),
    };
    for (field, name) in [("ct", CONTENT_TYPE), ("ce", header::CONTENT_ENCODING)] {
        if let Some(value) = text(field) {
            builder = match &canonical {
                Some(_) => builder.canonical_content_header(&name, &bytes(value)),
                None => builder.content_header(&name, &bytes(value)),
            };
        }
    }
    if let Some(extra) = input.get("extra").and_then(Value::as_object) {
        for (name, value) in extra {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            let mut headers = HeaderMap::new();
            headers.append(
                &name,
                HeaderValue::from_str(value.as_str().unwrap()).unwrap(),
            );
            builder = builder.bound_header(&name, &headers);
        }
    }
    builder
}

/// R20: `hs1` gives what two independent implementations agree on, preimage and text.
#[test]
fn all_vectors() {
    check(include_str!("hs1-vectors.json"), 12);
}

/// R20, R24: likewise with a canonical form of the body.
#[test]
fn all_vectors_of_canonical_bodies() {
    check(include_str!("custom-vectors.json"), 7);
}

fn check(vectors: &str, count: usize) {
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let vectors = vectors["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), count);
    for vector in vectors {
        let name = &vector["name"];
        let builder = build(&vector["input"]);
        let hex: String = builder
            .preimage()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, vector["preimage_hex"], "preimage of {name}");
        assert_eq!(
            builder.finish().as_str(),
            vector["fingerprint"],
            "fingerprint of {name}"
        );
        assert_eq!(builder.finish().as_str().len(), Fingerprint::LEN);
    }
}

/// R21: absent and empty differ, for the query, the content type and bound headers.
#[test]
fn absent_is_not_empty() {
    let base = Fingerprint::builder(&Method::POST)
        .path("/")
        .body_sha256([0; 32]);
    let name = HeaderName::from_static("x-version");
    let mut empty = HeaderMap::new();
    empty.append(&name, HeaderValue::from_static(""));
    let mut twice = empty.clone();
    twice.append(&name, HeaderValue::from_static(""));
    let all = [
        base.clone(),
        base.clone().query(Some("")),
        base.clone().content_header(&CONTENT_TYPE, b""),
        base.clone().content_header(&header::CONTENT_ENCODING, b""),
        base.clone().bound_header(&name, &empty),
        base.clone().bound_header(&name, &twice),
        base.body_custom_sha256([0; 32]),
    ];
    for (i, one) in all.iter().enumerate() {
        for other in &all[i + 1..] {
            assert_ne!(one.finish(), other.finish());
        }
    }
}

/// R21: an empty path is `/`, and optional white space around a content type does not count.
#[test]
fn normalisation_ends_there() {
    let base = || Fingerprint::builder(&Method::POST);
    assert_eq!(base().path("").finish(), base().path("/").finish());
    assert_ne!(base().path("/a").finish(), base().path("/%61").finish());
    let with = |value: &[u8]| base().content_header(&CONTENT_TYPE, value).finish();
    assert_eq!(with(b" a/b\t"), with(b"a/b"));
    assert_ne!(with(b"A/b"), with(b"a/b"));
}
