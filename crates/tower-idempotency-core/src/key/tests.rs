use super::*;

fn parse(value: &[u8]) -> Result<String, KeyError> {
    IdempotencyKey::parse(value, KeyGrammar::Compatible).map(|key| key.as_str().to_owned())
}

/// R2: a quoted and a bare form of one key are one key.
#[test]
fn quoted_and_bare_are_one_key() {
    assert_eq!(parse(b"abc"), Ok("abc".into()));
    assert_eq!(parse(b"\"abc\""), Ok("abc".into()));
    assert_eq!(parse(b"  \"abc\"\t"), Ok("abc".into()));
    assert_eq!(parse(br#""a\"b\\c""#), Ok(r#"a"b\c"#.into()));
    assert_eq!(parse(b"\"a,b; c\""), Ok("a,b; c".into()));
}

/// R2: parameters are parsed and ignored; what is not a parameter is refused.
#[test]
fn parameters_are_ignored_when_well_formed() {
    for good in [
        ";a",
        "; a",
        ";a=1",
        ";a=-1.5;b",
        ";a=?1",
        ";a=tok/en:x",
        ";a=\"s\\\"\"",
        ";a=:YWJj:",
        ";a=:YWI=:",
        ";a=:YW=:",
        ";a=@1659578233",
        ";a=%\"f%c3%bc\"",
        ";*k_-.1=*x",
        ";a;a",
    ] {
        assert_eq!(
            parse(format!("\"k\"{good}").as_bytes()),
            Ok("k".into()),
            "{good}"
        );
    }
    for bad in [
        ";",
        ";A",
        ";a=",
        "a",
        ",",
        " ;a",
        ";a =1",
        ";a=1.",
        ";a=.1",
        ";a=1234567890123456",
        ";a=1.2345",
        ";a=?2",
        ";a=\"",
        ";a=:YWI",
        ";a=:Y:",
        ";a=@1.5",
        ";a=%\"%C3%BC\"",
        ";a=%\"%c3\"",
        ";a=-",
        "; a;",
        " x",
        "\"",
    ] {
        assert_eq!(
            parse(format!("\"k\"{bad}").as_bytes()),
            Err(KeyError::Malformed),
            "{bad}"
        );
    }
}

/// R2: a key has 1 to 255 bytes after unescaping.
#[test]
fn length_is_bounded() {
    assert_eq!(parse(b""), Err(KeyError::Empty));
    assert_eq!(parse(b"   "), Err(KeyError::Empty));
    assert_eq!(parse(b"\"\""), Err(KeyError::Empty));
    assert_eq!(parse(b"\"  \""), Err(KeyError::Empty));
    assert_eq!(parse(&[b'k'; 255]), Ok("k".repeat(255)));
    assert_eq!(parse(&[b'k'; 256]), Err(KeyError::TooLong));
    assert_eq!(parse(&[b'k'; 8192]), Err(KeyError::TooLong));
    let escaped = format!("\"{}\"", "\\\\".repeat(255));
    assert_eq!(parse(escaped.as_bytes()), Ok("\\".repeat(255)));
    let escaped = format!("\"{}\"", "\\\\".repeat(256));
    assert_eq!(parse(escaped.as_bytes()), Err(KeyError::TooLong));
}

/// R2: no byte outside of printable ASCII, and no separator in a bare key.
#[test]
fn bytes_are_restricted() {
    for byte in (0..0x20).chain(0x7f..=0xff) {
        assert_eq!(
            parse(&[b'a', byte, b'b']),
            Err(KeyError::Malformed),
            "bare {byte:#x}"
        );
        assert_eq!(
            parse(&[b'"', b'a', byte, b'b', b'"']),
            Err(KeyError::Malformed),
            "quoted {byte:#x}"
        );
    }
    for bare in ["a,b", "a;b", "a b", "a\"b", "a\\b", "abc\"", "'a;b'"] {
        assert_eq!(parse(bare.as_bytes()), Err(KeyError::Malformed), "{bare}");
    }
    for quoted in ["\"abc", "\"a\\b\"", "\"a\\", "\"", "\"a\"b\""] {
        assert_eq!(
            parse(quoted.as_bytes()),
            Err(KeyError::Malformed),
            "{quoted}"
        );
    }
}

/// R2: the strict grammar refuses bare values.
#[test]
fn strict_refuses_bare() {
    let strict = |value: &[u8]| IdempotencyKey::parse(value, KeyGrammar::Strict);
    assert_eq!(strict(b"abc"), Err(KeyError::NotQuoted));
    assert!(strict(b"\"abc\"").is_ok());
}

/// R1: exactly one field line, even if several are equal.
#[test]
fn one_field_line() {
    let name = HeaderName::from_static("idempotency-key");
    let mut headers = HeaderMap::new();
    let key =
        |headers: &HeaderMap| IdempotencyKey::from_headers(headers, &name, KeyGrammar::Compatible);
    assert_eq!(key(&headers), Err(KeyError::Missing));
    headers.append(&name, "a".parse().unwrap());
    assert_eq!(key(&headers).unwrap().as_str(), "a");
    headers.append(&name, "a".parse().unwrap());
    assert_eq!(key(&headers), Err(KeyError::Repeated));
}

/// R3: a key is never shown whole.
#[test]
fn debug_shows_a_hash() {
    let key = IdempotencyKey::from_text("secret").unwrap();
    assert_eq!(format!("{key:?}"), "IdempotencyKey(2bb80d53)");
}
