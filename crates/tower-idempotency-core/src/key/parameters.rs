//! Parameters of a structured field item, parsed only to be ignored: RFC 9651, section 4.2.3.2.

/// Whether `rest` is nothing but well-formed parameters.
pub(super) fn skip(mut rest: &[u8]) -> Option<()> {
    while let [b';', tail @ ..] = rest {
        rest = key(skip_while(tail, |byte| byte == b' '))?;
        if let [b'=', tail @ ..] = rest {
            rest = bare_item(tail)?;
        }
    }
    rest.is_empty().then_some(())
}

fn skip_while(rest: &[u8], wanted: impl Fn(u8) -> bool) -> &[u8] {
    let end = rest.iter().position(|byte| !wanted(*byte));
    &rest[end.unwrap_or(rest.len())..]
}

fn key(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [b'a'..=b'z' | b'*', tail @ ..] => Some(skip_while(
            tail,
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
        )),
        _ => None,
    }
}

fn bare_item(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [b'-' | b'0'..=b'9', ..] => number(rest).map(|(rest, _)| rest),
        // A date is an integer.
        [b'@', tail @ ..] => match number(tail)? {
            (rest, Number::Integer) => Some(rest),
            (_, Number::Decimal) => None,
        },
        [b'"', tail @ ..] => string(tail),
        [b'%', b'"', tail @ ..] => display_string(tail),
        [b':', tail @ ..] => byte_sequence(tail),
        [b'?', b'0' | b'1', tail @ ..] => Some(tail),
        [b'A'..=b'Z' | b'a'..=b'z' | b'*', tail @ ..] => Some(skip_while(tail, |byte| {
            byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
        })),
        _ => None,
    }
}

enum Number {
    Integer,
    Decimal,
}

/// At most 15 digits, or at most 12 before and 1 to 3 after the point.
fn number(rest: &[u8]) -> Option<(&[u8], Number)> {
    let digits = |rest| skip_while(rest, |byte| byte.is_ascii_digit());
    let rest = rest.strip_prefix(b"-").unwrap_or(rest);
    let after = digits(rest);
    let whole = rest.len() - after.len();
    let [b'.', fraction @ ..] = after else {
        return (1..=15)
            .contains(&whole)
            .then_some((after, Number::Integer));
    };
    let after = digits(fraction);
    let decimals = fraction.len() - after.len();
    ((1..=12).contains(&whole) && (1..=3).contains(&decimals)).then_some((after, Number::Decimal))
}

fn string(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        rest = match rest {
            [b'"', tail @ ..] => return Some(tail),
            [b'\\', b'"' | b'\\', tail @ ..] => tail,
            [b'\\', ..] | [] => return None,
            [byte, tail @ ..] if super::is_printable(*byte) => tail,
            [..] => return None,
        };
    }
}

/// Percent-encoded UTF-8 with lower-case digits (section 4.2.10).
fn display_string(mut rest: &[u8]) -> Option<&[u8]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut decoded = Vec::new();
    loop {
        match rest {
            [b'"', tail @ ..] => {
                return std::str::from_utf8(&decoded).is_ok().then_some(tail);
            }
            [b'%', high, low, tail @ ..] => {
                decoded.push(digit(*high)? << 4 | digit(*low)?);
                rest = tail;
            }
            [b'%', ..] | [] => return None,
            [byte, tail @ ..] if super::is_printable(*byte) => {
                decoded.push(*byte);
                rest = tail;
            }
            [..] => return None,
        }
    }
}

/// Base64 between colons (section 4.2.7), whose padding may be missing, all of it or half.
fn byte_sequence(rest: &[u8]) -> Option<&[u8]> {
    let after = skip_while(rest, |byte| {
        byte.is_ascii_alphanumeric() || b"+/".contains(&byte)
    });
    let digits = rest.len() - after.len();
    let closed = skip_while(after, |byte| byte == b'=');
    let padding = after.len() - closed.len();
    let whole = match digits % 4 {
        0 => padding == 0,
        2 => padding <= 2,
        3 => padding <= 1,
        _ => false,
    };
    match closed {
        [b':', tail @ ..] if whole => Some(tail),
        _ => None,
    }
}
