//! Multipart forms, whose boundary is another one for every retry.

use bytes::Bytes;
use http::request::Parts;

use crate::media_type;

/// The first byte of a form: what follows is the body as it is, or its parts.
const AS_IT_IS: u8 = 0;
const PARTS: u8 = 1;

/// Takes the boundary away: what is left are the parts, each with its own headers, in their order.
///
/// A body is taken as it is if its Content-Type does not say that it is multipart, or if it is
/// malformed.
pub fn canonical_form(parts: &Parts, body: &Bytes) -> Bytes {
    let Some((kind, parameters)) = media_type(parts) else {
        return body.clone();
    };
    if !kind.starts_with("multipart/") {
        return body.clone();
    }
    let mut form = Vec::with_capacity(body.len());
    match boundary(parameters).and_then(|boundary| split(body, boundary)) {
        Some(parts) => {
            form.push(PARTS);
            for part in parts {
                form.extend_from_slice(&(part.len() as u64).to_be_bytes());
                form.extend_from_slice(part);
            }
        }
        // No body that is malformed is taken for the parts of another.
        None => {
            form.push(AS_IT_IS);
            form.extend_from_slice(body);
        }
    }
    form.into()
}

/// The boundary among the parameters of the Content-Type, if there is one and it is a plain one.
fn boundary(parameters: &str) -> Option<&str> {
    let mut found = parameters.split(';').filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("boundary")
            .then_some(value.trim())
    });
    let boundary = found.next()?;
    let quoted = boundary
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let boundary = quoted.unwrap_or(boundary);
    let plain = !boundary.contains(['"', '\\']) && (1..=70).contains(&boundary.len());
    (plain && found.next().is_none()).then_some(boundary)
}

/// The parts between the boundaries (RFC 2046, section 5.1.1), with nothing before or after them.
fn split<'a>(body: &'a [u8], boundary: &str) -> Option<Vec<&'a [u8]>> {
    let delimiter = format!("\r\n--{boundary}");
    let mut rest = body.strip_prefix(&delimiter.as_bytes()[2..])?;
    let mut parts = Vec::new();
    loop {
        if matches!(rest, b"--" | b"--\r\n") {
            return Some(parts);
        }
        rest = rest.strip_prefix(b"\r\n")?;
        let end = find(rest, delimiter.as_bytes())?;
        parts.push(&rest[..end]);
        rest = &rest[end + delimiter.len()..];
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(content_type: &str, body: &str) -> Bytes {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        let content_type = content_type.parse().expect("a field line");
        parts
            .headers
            .insert(http::header::CONTENT_TYPE, content_type);
        canonical_form(&parts, &Bytes::copy_from_slice(body.as_bytes()))
    }

    fn two_parts(boundary: &str) -> String {
        format!(
            "--{boundary}\r\nx: 1\r\n\r\none\r\n--{boundary}\r\n\r\ntwo--\r\n--{boundary}--\r\n"
        )
    }

    /// The boundary does not count, quoted or not.
    #[test]
    fn the_boundary_does_not_count() {
        let one = form("multipart/form-data; boundary=a", &two_parts("a"));
        assert_eq!(one[0], PARTS);
        let other = form(
            "Multipart/Form-Data; charset=x; Boundary=\"b c\"",
            &two_parts("b c"),
        );
        assert_eq!(one, other);
    }

    /// The parts count, with their headers, their order and where one ends.
    #[test]
    fn the_parts_count() {
        let whole = two_parts("a");
        let kind = "multipart/form-data; boundary=a";
        for (from, to) in [
            ("one", "One"),
            ("x: 1", "x: 2"),
            ("two--", "two"),
            ("\r\none", "one"),
            ("\r\n--a\r\n", "\r\n--b\r\n"),
        ] {
            assert_ne!(
                form(kind, &whole),
                form(kind, &whole.replacen(from, to, 1)),
                "{from}"
            );
        }
    }

    /// What is malformed is taken as it is, and never for the parts of another.
    #[test]
    fn as_it_is() {
        for (kind, body) in [
            ("multipart/form-data", two_parts("a")),
            ("multipart/form-data; boundary=b", two_parts("a")),
            (
                "multipart/form-data; boundary=a; boundary=a",
                two_parts("a"),
            ),
            (
                "multipart/form-data; boundary=a",
                two_parts("a").replace("--\r\n", ""),
            ),
            (
                "multipart/form-data; boundary=a",
                format!("before\r\n{}", two_parts("a")),
            ),
            (
                "multipart/form-data; boundary=a",
                format!("{}after", two_parts("a")),
            ),
            ("multipart/form-data; boundary=a", String::new()),
        ] {
            assert_eq!(
                form(kind, &body),
                [&[AS_IT_IS], body.as_bytes()].concat(),
                "{kind}"
            );
        }
        assert_eq!(
            form("text/plain; boundary=a", &two_parts("a")),
            two_parts("a")
        );
    }
}
