//! The fields of a request's fingerprint, and requests that look alike.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use tower_idempotency_core::{Fingerprint, FingerprintBuilder};

/// What a fingerprint is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) method: String,
    pub(crate) path: Option<String>,
    pub(crate) query: Option<String>,
    pub(crate) content_type: Option<Vec<u8>>,
    pub(crate) content_encoding: Option<Vec<u8>>,
    pub(crate) body: Body,
    /// Bound headers, by name in lower case, with their lines.
    pub(crate) bound: BTreeMap<String, Vec<Vec<u8>>>,
}

/// A digest, of the body or of what was made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    Raw([u8; 32]),
    Custom([u8; 32]),
}

impl Default for Body {
    fn default() -> Self {
        Self::Raw([0; 32])
    }
}

impl Fields {
    /// What is left once an empty path and white space are normalised.
    pub(crate) fn normal(&self) -> Self {
        let trimmed =
            |value: &Option<Vec<u8>>| value.as_ref().map(|value| value.trim_ascii().to_vec());
        let path = self.path.as_ref();
        let path = path.map(|path| {
            if path.is_empty() {
                "/".to_owned()
            } else {
                path.clone()
            }
        });
        Self {
            path,
            content_type: trimmed(&self.content_type),
            content_encoding: trimmed(&self.content_encoding),
            ..self.clone()
        }
    }

    pub(crate) fn builder(&self) -> FingerprintBuilder {
        let method = Method::from_bytes(self.method.as_bytes()).expect("a token");
        let mut builder = Fingerprint::builder(&method).query(self.query.as_deref());
        if let Some(path) = &self.path {
            builder = builder.path(path);
        }
        builder = match self.body {
            Body::Raw(digest) => builder.body_sha256(digest),
            Body::Custom(digest) => builder.body_custom_sha256(digest),
        };
        for (name, value) in [
            (header::CONTENT_TYPE, &self.content_type),
            (header::CONTENT_ENCODING, &self.content_encoding),
        ] {
            if let Some(value) = value {
                builder = builder.content_header(&name, value);
            }
        }
        for (name, lines) in &self.bound {
            let name: HeaderName = name.parse().expect("a token");
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(&name, HeaderValue::from_bytes(line).expect("a field line"));
            }
            builder = builder.bound_header(&name, &headers);
        }
        builder
    }
}

/// Texts that look like each other's beginnings and ends.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a/?=&%0]{0,4}",
        Just("method".to_owned()),
        "[!-~]{0,20}"
    ]
}

/// A field line: no control byte but the tab.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b'\t'), 0x20..=0x7e_u8, 0x80..=0xff_u8];
    prop_oneof![
        Just(Vec::new()),
        vec(byte, 0..12),
        Just(b"a".to_vec()),
        Just(vec![0x80, 0xff])
    ]
}

fn digest() -> impl Strategy<Value = [u8; 32]> {
    prop_oneof![Just([0; 32]), any::<[u8; 32]>()]
}

pub(crate) fn any_fields() -> impl Strategy<Value = Fields> {
    let body = prop_oneof![
        digest().prop_map(Body::Raw),
        digest().prop_map(Body::Custom)
    ];
    let method = prop_oneof![
        Just("POST".to_owned()),
        Just("PATCH".to_owned()),
        "[A-Za-z!#$.]{1,6}"
    ];
    let name = prop_oneof![
        "x-[a-b]{1,2}",
        Just("body-sha256".to_owned()),
        Just("x-a:".replace(':', ""))
    ];
    let bound = btree_map(name, vec(line(), 1..4), 0..3);
    let content = (option::of(line()), option::of(line()));
    (
        method,
        option::of(text()),
        option::of(text()),
        content,
        body,
        bound,
    )
        .prop_map(
            |(method, path, query, (content_type, content_encoding), body, bound)| Fields {
                method,
                path,
                query,
                content_type,
                content_encoding,
                body,
                bound,
            },
        )
}

/// Two requests that have all fields but one or two in common.
pub(crate) fn similar_fields() -> impl Strategy<Value = (Fields, Fields)> {
    let one_of = 0..8_u8;
    (any_fields(), any_fields(), one_of.clone(), one_of).prop_map(
        |(one, mut source, first, second)| {
            let mut other = one.clone();
            for changed in [first, second] {
                match changed {
                    0 => std::mem::swap(&mut other.method, &mut source.method),
                    1 => std::mem::swap(&mut other.path, &mut source.path),
                    2 => std::mem::swap(&mut other.query, &mut source.query),
                    3 => std::mem::swap(&mut other.content_type, &mut source.content_type),
                    4 => std::mem::swap(&mut other.content_encoding, &mut source.content_encoding),
                    5 => std::mem::swap(&mut other.body, &mut source.body),
                    6 => std::mem::swap(&mut other.bound, &mut source.bound),
                    // A value moves from one field to its neighbour.
                    _ => std::mem::swap(&mut other.content_type, &mut other.content_encoding),
                }
            }
            (one, other)
        },
    )
}
