//! The key: what an independent parser of structured fields takes for a String is a key, and what is
//! a key can be written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sfv::{BareItem, Item, Parser};
use tower_idempotency_core::{IdempotencyKey, KeyError, KeyGrammar};

fuzz_target!(|value: &[u8]| {
    let strict = IdempotencyKey::parse(value, KeyGrammar::Strict);
    let compatible = IdempotencyKey::parse(value, KeyGrammar::Compatible);
    if let Ok(key) = &strict {
        assert_eq!(compatible.as_ref(), Ok(key), "strict keys are keys");
    }
    if let Ok(key) = &compatible {
        well_formed(key);
    }
    let quoted = value.trim_ascii_start().first() == Some(&b'"');
    assert!(quoted || strict.is_err(), "a strict key is quoted");
    // RFC 9110: white space around a value is no part of it, and only SP and HTAB are white space.
    let trimmed = trim(value);
    if trimmed.first() == Some(&b'"') {
        let expected = reference(trimmed);
        assert_eq!(strict.ok().map(|key| key.as_str().to_owned()), expected);
    }
});

fn trim(value: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value
        .iter()
        .position(|byte| !blank(byte))
        .unwrap_or(value.len());
    let end = value
        .iter()
        .rposition(|byte| !blank(byte))
        .map_or(start, |end| end + 1);
    &value[start..end]
}

/// The String that another implementation of RFC 9651 reads, if it can be a key.
fn reference(value: &[u8]) -> Option<String> {
    let item: Item = Parser::new(value).parse().ok()?;
    let BareItem::String(key) = item.bare_item else {
        return None;
    };
    let key = key.as_str();
    let fits = key.len() <= IdempotencyKey::MAX_LEN && key.bytes().any(|byte| byte != b' ');
    fits.then(|| key.to_owned())
}

/// Every key reads back: from its text, and quoted.
fn well_formed(key: &IdempotencyKey) {
    let text = key.as_str();
    assert!((1..=IdempotencyKey::MAX_LEN).contains(&text.len()));
    assert_eq!(IdempotencyKey::from_text(text).as_ref(), Ok(key));
    let escaped = text.replace('\\', r"\\").replace('"', r#"\""#);
    let quoted = format!("\"{escaped}\"");
    let again: Result<_, KeyError> = IdempotencyKey::parse(quoted.as_bytes(), KeyGrammar::Strict);
    assert_eq!(again.as_ref(), Ok(key));
    let shown = format!("{key:?}");
    assert_eq!(
        shown.len(),
        "IdempotencyKey(01234567)".len(),
        "a key is not logged"
    );
}
