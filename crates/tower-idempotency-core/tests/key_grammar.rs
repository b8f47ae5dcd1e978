//! The key's grammar, case by case as RFC 9651 gives it for Strings and the parameters behind them.

use tower_idempotency_core::{IdempotencyKey, KeyError, KeyGrammar};

fn parse(value: &[u8]) -> Result<String, KeyError> {
    let strict = IdempotencyKey::parse(value, KeyGrammar::Strict);
    let compatible = IdempotencyKey::parse(value, KeyGrammar::Compatible);
    if value.trim_ascii_start().starts_with(b"\"") {
        assert_eq!(strict, compatible, "a quoted key means the same everywhere");
    }
    compatible.map(|key| key.as_str().to_owned())
}

/// R2: inside quotes every printable byte stands for itself, but for the quote and the backslash.
#[test]
fn every_byte_inside_quotes() {
    for byte in 0..=u8::MAX {
        let value = [b'"', b'<', byte, b'>', b'"'];
        let expected = match byte {
            b'"' | b'\\' => Err(KeyError::Malformed),
            0x20..=0x7e => Ok(format!("<{}>", char::from(byte))),
            0..=0x1f | 0x7f..=u8::MAX => Err(KeyError::Malformed),
        };
        assert_eq!(parse(&value), expected, "{byte:#04x}");
    }
}

/// R2: a backslash escapes the quote and itself, and nothing else.
#[test]
fn every_byte_escaped() {
    for byte in 0..=u8::MAX {
        let value = [b'"', b'<', b'\\', byte, b'>', b'"'];
        let expected = match byte {
            b'"' | b'\\' => Ok(format!("<{}>", char::from(byte))),
            0..=u8::MAX => Err(KeyError::Malformed),
        };
        assert_eq!(parse(&value), expected, "{byte:#04x}");
    }
}

/// R2: a bare key has visible ASCII without what separates, quotes or escapes.
#[test]
fn every_byte_of_a_bare_key() {
    for byte in 0..=u8::MAX {
        let expected = match byte {
            b'"' | b'\\' | b',' | b';' => Err(KeyError::Malformed),
            0x21..=0x7e => Ok(format!("<{}>", char::from(byte))),
            0..=0x20 | 0x7f..=u8::MAX => Err(KeyError::Malformed),
        };
        assert_eq!(parse(&[b'<', byte, b'>']), expected, "{byte:#04x}");
        let strict = IdempotencyKey::parse(&[b'<', byte, b'>'], KeyGrammar::Strict);
        assert_eq!(strict, Err(KeyError::NotQuoted), "{byte:#04x}");
    }
}

/// R2: Items that are no String are bare keys at best, and none for a strict server.
#[test]
fn items_of_other_types() {
    for (item, bare) in [
        ("1", true),
        ("-1.5", true),
        ("token/x:*", true),
        (":YWJj:", true),
        ("?1", true),
        ("@1659578233", true),
        ("(a)", true),
        ("%\"a\"", false),
        ("(\"a\")", false),
        ("a, b", false),
        ("a;b", false),
    ] {
        assert_eq!(parse(item.as_bytes()).is_ok(), bare, "{item}");
        let strict = IdempotencyKey::parse(item.as_bytes(), KeyGrammar::Strict);
        assert_eq!(strict, Err(KeyError::NotQuoted), "{item}");
    }
}

/// R2: what stands behind the string is nothing but white space or parameters.
#[test]
fn behind_the_string() {
    for good in ["", " ", "\t", " \t ", ";a ", ";a\t"] {
        assert_eq!(
            parse(format!("\"k\"{good}").as_bytes()),
            Ok("k".into()),
            "{good:?}"
        );
    }
    for bad in [
        "x", "\"k\"", " \"k\"", ",", ", \"k\"", ",\"k\"", "=1", " ;a", ";", "; ", ";a;", ";;a",
    ] {
        assert_eq!(
            parse(format!("\"k\"{bad}").as_bytes()),
            Err(KeyError::Malformed),
            "{bad:?}"
        );
    }
}

/// R2: the name of a parameter begins with a lower-case letter or an asterisk.
#[test]
fn every_byte_in_the_name_of_a_parameter() {
    for byte in 0..=u8::MAX {
        let first = matches!(byte, b'a'..=b'z' | b'*');
        let value = [b'"', b'k', b'"', b';', byte, b'a'];
        let blank = byte == b' ';
        assert_eq!(parse(&value).is_ok(), first || blank, "first {byte:#04x}");

        let later = first || matches!(byte, b'0'..=b'9' | b'_' | b'-' | b'.');
        let value = [b'"', b'k', b'"', b';', b'a', byte, b'b'];
        // A second parameter would begin, or a value.
        let other = matches!(byte, b';' | b'=');
        assert_eq!(parse(&value).is_ok(), later || other, "later {byte:#04x}");
    }
}

/// R2: parameters of every type are read, and ignored.
#[test]
fn parameters_of_every_type() {
    let good: &[(&str, &[&str])] = &[
        (
            "integer",
            &["0", "-0", "00", "42", "-999999999999999", "999999999999999"],
        ),
        (
            "decimal",
            &["0.0", "-1.5", "1.123", "123456789012.1", "999999999999.999"],
        ),
        (
            "string",
            &["\"\"", "\"a\"", "\"a\\\"b\"", "\"\\\\\"", "\"; x=1, \""],
        ),
        (
            "token",
            &[
                "a",
                "A",
                "*",
                "*a",
                "a/b",
                "a:b",
                "foo123/456",
                "a!#$%&'*+-.^_`|~",
                "a1",
            ],
        ),
        (
            "byte sequence",
            &[
                "::", ":YQ==:", ":YWI=:", ":YWJj:", ":YQ:", ":YQ=:", ":+/+/:",
            ],
        ),
        ("boolean", &["?0", "?1"]),
        ("date", &["@0", "@-1", "@1659578233", "@999999999999999"]),
        (
            "display string",
            &["%\"\"", "%\"a b\"", "%\"f%c3%bc\"", "%\"%22\"", "%\"%00\""],
        ),
    ];
    for (kind, values) in good {
        for value in *values {
            for form in [
                format!(";p={value}"),
                format!("; a;  p={value};z"),
                format!(";p;p={value}"),
            ] {
                assert_eq!(
                    parse(format!("\"k\"{form}").as_bytes()),
                    Ok("k".into()),
                    "{kind}: {form}"
                );
            }
        }
    }
    let bad: &[(&str, &[&str])] = &[
        ("nothing", &["", " 1", "=", ";b"]),
        (
            "integer",
            &["-", "--1", "+1", "1000000000000000", "1a", "1 2"],
        ),
        (
            "decimal",
            &[
                "1.",
                ".5",
                "1.2345",
                "1234567890123.1",
                "1..2",
                "1.2.3",
                "-.1",
            ],
        ),
        (
            "string",
            &["\"", "\"a", "\"a\\", "\"\\a\"", "\"\u{fc}\"", "'a'"],
        ),
        ("token", &["!a", "a,b", "a\"", "a(b)", "a@b", "\u{fc}"]),
        (
            "byte sequence",
            &[
                ":", ":YQ", ":Y:", ":Y===:", ":YQ===:", ":YWI==:", ":YWJj=:", ":=:", ":Y Q=:",
                ":YQ-_:", ":=YQ=:",
            ],
        ),
        ("boolean", &["?", "?2", "?01", "?true"]),
        ("date", &["@", "@-", "@1.5", "@a", "@1000000000000000"]),
        (
            "display string",
            &[
                "%",
                "%a",
                "%\"",
                "%\"%C3%BC\"",
                "%\"%c3\"",
                "%\"%ff\"",
                "%\"%4\"",
                "%\"\u{fc}\"",
            ],
        ),
        ("inner list", &["()", "(a)"]),
    ];
    for (kind, values) in bad {
        for value in *values {
            // `;p=;b` has no value either.
            let parsed = parse(format!("\"k\";p={value}").as_bytes());
            assert_eq!(parsed, Err(KeyError::Malformed), "{kind}: {value}");
        }
    }
}

/// R2: a key has 1 to 255 bytes after unescaping, quoted or not.
#[test]
fn lengths() {
    for length in [1, 2, 254, 255, 256, 257, 8_192] {
        let expected = if length <= IdempotencyKey::MAX_LEN {
            Ok(length)
        } else {
            Err(KeyError::TooLong)
        };
        let bare = "k".repeat(length);
        let escaped = format!("\"{}\"", "\\\"".repeat(length));
        let behind = format!("\"{bare}\";p=\"{}\"", "x".repeat(8_192));
        for value in [bare, escaped, behind] {
            let parsed = parse(value.as_bytes()).map(|key| key.len());
            assert_eq!(parsed, expected, "{length}");
        }
    }
    for blank in ["", "\t", "\"\"", "\" \"", "\"    \";p"] {
        assert_eq!(parse(blank.as_bytes()), Err(KeyError::Empty), "{blank:?}");
    }
}
