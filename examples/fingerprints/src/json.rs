//! JSON whose members may come in any order.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use http::request::Parts;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::media_type;

/// Deeper JSON is taken as it is, so that nobody can exhaust the stack.
const MAX_DEPTH: usize = 64;

/// Makes the members of objects come in the order of their names, and takes white space and
/// needless escapes away.
///
/// Numbers count as they are written: `1`, `1.0` and `1e0` may differ to a handler. A body is
/// taken as it is if its Content-Type does not say that it is JSON, if it is malformed, nested
/// deeper than 64 levels, or if an object has two members of one name, of which no two parsers take
/// the same.
pub fn canonical_json(parts: &Parts, body: &Bytes) -> Bytes {
    let is_json = media_type(parts)
        .is_some_and(|(kind, _)| kind == "application/json" || kind.ends_with("+json"));
    let canonical = is_json.then(|| canonical(body)).flatten();
    canonical.map_or_else(|| body.clone(), Bytes::from)
}

fn canonical(body: &[u8]) -> Option<String> {
    let mut out = String::with_capacity(body.len());
    write(serde_json::from_slice(body).ok()?, MAX_DEPTH, &mut out)?;
    Some(out)
}

fn write(value: &RawValue, depth: usize, out: &mut String) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let text = value.get();
    match text.as_bytes().first()? {
        b'{' => {
            let Members(members) = serde_json::from_str(text).ok()?;
            out.push('{');
            for (n, (name, value)) in members.into_iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                out.push_str(&serde_json::to_string(&name).ok()?);
                out.push(':');
                write(value, depth, out)?;
            }
            out.push('}');
        }
        b'[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            out.push('[');
            for (n, element) in elements.into_iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                write(element, depth, out)?;
            }
            out.push(']');
        }
        b'"' => {
            let text: String = serde_json::from_str(text).ok()?;
            out.push_str(&serde_json::to_string(&text).ok()?);
        }
        _ => out.push_str(text),
    }
    Some(())
}

/// The members of an object by their names, of which there is one each.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    if members.insert(name, value).is_some() {
                        return Err(A::Error::custom("two members have one name"));
                    }
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(body: &str) -> String {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        let kind = http::HeaderValue::from_static("Application/Problem+JSON; charset=utf-8");
        parts.headers.insert(http::header::CONTENT_TYPE, kind);
        let form = canonical_json(&parts, &Bytes::copy_from_slice(body.as_bytes()));
        String::from_utf8(form.to_vec()).expect("UTF-8")
    }

    /// Order, white space and escapes do not count, at any depth.
    #[test]
    fn what_does_not_count() {
        let one = r#"{ "b" : [ {"y":"\u0041\/","x":null} , true ] , "a" : 1.0 }"#;
        let other = r#"{"a":1.0,"b":[{"x":null,"y":"A/"},true]}"#;
        assert_eq!(form(one), other);
        assert_eq!(form(other), other);
    }

    /// What a handler could notice counts.
    #[test]
    fn what_counts() {
        for (one, other) in [
            ("[1,2]", "[2,1]"),
            ("1", "1.0"),
            ("12345678901234567890123", "12345678901234567890124"),
            ("\"1\"", "1"),
            ("{\"a\":null}", "{}"),
            ("{\"a\":1}", "{\"A\":1}"),
            ("\"\\u00e9\"", "\"e\\u0301\""),
        ] {
            assert_ne!(form(one), form(other));
        }
    }

    /// What is not understood is taken as it is.
    #[test]
    fn as_it_is() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for body in [
            "{\"b\": 1, \"b\": 1}",
            "{\"b\": 1, \"\\u0062\": 1}",
            "{ ",
            "",
            " 1 2",
            &deep,
        ] {
            assert_eq!(form(body), body);
        }
        let (parts, ()) = http::Request::new(()).into_parts();
        let body = Bytes::from_static(b"{ }");
        assert_eq!(canonical_json(&parts, &body), body, "no Content-Type");
    }
}
