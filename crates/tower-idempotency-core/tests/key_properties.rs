//! The key's parser against another implementation of RFC 9651, on whatever bytes come.

use proptest::collection::vec;
use proptest::prelude::*;
use sfv::{BareItem, Item, Parser};
use tower_idempotency_core::{IdempotencyKey, KeyError, KeyGrammar};

fn parse(value: &[u8], grammar: KeyGrammar) -> Result<String, KeyError> {
    IdempotencyKey::parse(value, grammar).map(|key| key.as_str().to_owned())
}

/// What the other implementation says of a field value, within our lengths.
fn reference(value: &[u8]) -> Option<String> {
    let item = Parser::new(value).parse::<Item>().ok()?;
    let BareItem::String(text) = item.bare_item else {
        return None;
    };
    let text = text.as_str().to_owned();
    let blank = text.bytes().all(|byte| byte == b' ');
    (!blank && text.len() <= IdempotencyKey::MAX_LEN).then_some(text)
}

/// Bytes, of which many look like a part of a structured field.
fn fragments(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => prop::sample::select(vec![
            "\"", "\\", "\\\"", "\\\\", ";", "; ", ";a", ";a=", "=", ",", " ", "\t", "a", "k", "*", "-", ".", "1",
            "1.5", "123456789012345", "?", "?1", ":", ":YWI=:", ":YQ:", "YW", "@", "@1", "%\"", "%c3%bc", "%C3",
            "%", "\"s\"", "(", ")", "/",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    vec(part, 0..most).prop_map(|parts| parts.concat())
}

/// Field values that begin like a String item.
fn quoted() -> impl Strategy<Value = Vec<u8>> {
    let inside = prop_oneof![fragments(4), "[ -~]{0,8}".prop_map(String::into_bytes)];
    (inside, fragments(10))
        .prop_map(|(inside, behind)| [b"\"", &inside[..], b"\"", &behind].concat())
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn printable(most: usize) -> impl Strategy<Value = String> {
    vec(0x20..=0x7e_u8, 1..=most)
        .prop_map(|bytes| bytes.into_iter().map(char::from).collect::<String>())
        .prop_filter("not blank", |text| !text.bytes().all(|byte| byte == b' '))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// R2: the strict grammar is that of a String item: it accepts what another implementation
    /// accepts, with the same content, and nothing else.
    #[test]
    fn strict_keys_are_string_items(value in prop_oneof![quoted(), fragments(12)]) {
        // Optional white space around a field value is not part of it.
        let expected = reference(trim(&value));
        prop_assert_eq!(parse(&value, KeyGrammar::Strict).ok(), expected);
    }

    /// R2: a value that begins with a quote means the same in both grammars; any other is taken as
    /// it is, or not at all.
    #[test]
    fn compatible_keys_are_strict_ones_or_bare(value in fragments(6)) {
        let (strict, compatible) = (parse(&value, KeyGrammar::Strict), parse(&value, KeyGrammar::Compatible));
        let value = trim(&value);
        if value.first() == Some(&b'"') {
            prop_assert_eq!(strict, compatible);
        } else {
            prop_assert!(strict.is_err());
            if let Ok(key) = compatible {
                prop_assert_eq!(key.as_bytes(), value);
            }
        }
    }

    /// R2: any printable text survives being quoted, and is the key that a store keeps.
    #[test]
    fn quoting_round_trips(text in printable(IdempotencyKey::MAX_LEN)) {
        let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let key = IdempotencyKey::parse(quoted.as_bytes(), KeyGrammar::Strict);
        prop_assert_eq!(key.as_ref().map(IdempotencyKey::as_str), Ok(&text[..]));
        prop_assert_eq!(IdempotencyKey::from_text(&text), key);
    }

    /// R2: no bytes, of whatever length, make the parser panic, and a key that it makes is within
    /// its bounds.
    #[test]
    fn nothing_panics(value in vec(any::<u8>(), 0..600)) {
        for grammar in [KeyGrammar::Strict, KeyGrammar::Compatible] {
            if let Ok(key) = parse(&value, grammar) {
                prop_assert!((1..=IdempotencyKey::MAX_LEN).contains(&key.len()));
                prop_assert!(key.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
            }
        }
    }
}
