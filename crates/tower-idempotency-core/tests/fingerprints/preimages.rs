//! No two different requests have one preimage: it can be read back, and gives the same fields.

use proptest::prelude::*;
use tower_idempotency_core::Fingerprint;

use crate::fields::{Body, Fields, any_fields, similar_fields};

/// Reads a preimage as protocol.md states it. `None` where it is none.
fn read(preimage: &[u8]) -> Option<Fields> {
    let mut rest = preimage.strip_prefix(b"hs1\0")?;
    let (count, tail) = rest.split_first_chunk::<4>()?;
    rest = tail;
    let mut fields = Fields::default();
    let mut previous: Option<&[u8]> = None;
    for _ in 0..u32::from_be_bytes(*count) {
        let (name, tail) = take(rest)?;
        let (value, tail) = take(tail)?;
        rest = tail;
        if previous.is_some_and(|previous| previous >= name) {
            return None;
        }
        previous = Some(name);
        let value = value.to_vec();
        match std::str::from_utf8(name).ok()? {
            "method" => fields.method = String::from_utf8(value).ok()?,
            "path" => fields.path = Some(String::from_utf8(value).ok()?),
            "query" => fields.query = Some(String::from_utf8(value).ok()?),
            "content-type" => fields.content_type = Some(value),
            "content-encoding" => fields.content_encoding = Some(value),
            "body-sha256" => fields.body = Body::Raw(value.try_into().ok()?),
            "body-custom-sha256" => fields.body = Body::Custom(value.try_into().ok()?),
            name => {
                let name = name.strip_prefix("h:")?.to_owned();
                fields.bound.insert(name, lines(&value)?);
            }
        }
    }
    rest.is_empty().then_some(fields)
}

fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)
}

/// The lines of a bound header: one as it is, or several, each behind its length.
fn lines(value: &[u8]) -> Option<Vec<Vec<u8>>> {
    if value.first() != Some(&0) {
        return Some(vec![value.to_vec()]);
    }
    let (mut lines, mut rest) = (Vec::new(), value);
    while !rest.is_empty() {
        let (line, tail) = take(rest)?;
        lines.push(line.to_vec());
        rest = tail;
    }
    (lines.len() > 1).then_some(lines)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// R20, R21, R23: a preimage gives back the fields that it was made of, whatever they hold.
    #[test]
    fn a_preimage_can_be_read_back(fields in any_fields()) {
        let preimage = fields.builder().preimage();
        prop_assert_eq!(read(&preimage), Some(fields.normal()));
    }

    /// R20, R21, R23: two requests have one preimage, and one fingerprint, exactly if all of their
    /// fields are equal.
    #[test]
    fn different_requests_differ((one, other) in similar_fields()) {
        let same = one.normal() == other.normal();
        prop_assert_eq!(one.builder().preimage() == other.builder().preimage(), same);
        let fingerprint = one.builder().finish();
        prop_assert_eq!(fingerprint == other.builder().finish(), same);
        prop_assert_eq!(fingerprint.as_str().len(), Fingerprint::LEN);
    }
}
