//! Which response headers are kept, and how they are stored.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::error::StoreError;

/// The request header that carries the key.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The response header that marks a replay, with the value `true`.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Kept unless told otherwise: what belongs to the result, not to the exchange.
const KEPT: &[&str] = &[
    "content-type",
    "content-language",
    "content-disposition",
    "content-location",
    "location",
    "link",
    "etag",
    "last-modified",
    "cache-control",
    "preference-applied",
    "retry-after",
    // Set by the handler itself: compression belongs outside of the layer.
    "content-encoding",
    "vary",
];

/// Never kept, whatever the configuration: hop by hop (RFC 9110, section 7.6.1), or made anew.
/// `proxy-*` and the replay mark are not kept either.
const NEVER: &[&str] = &[
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "date",
];

/// Which response headers are kept.
#[derive(Debug, Clone)]
pub(crate) struct HeaderPolicy {
    more: Vec<HeaderName>,
    pub(crate) replayed: HeaderName,
}

impl Default for HeaderPolicy {
    fn default() -> Self {
        Self {
            more: Vec::new(),
            replayed: IDEMPOTENT_REPLAYED,
        }
    }
}

impl HeaderPolicy {
    pub(crate) fn keep(&mut self, name: HeaderName) {
        self.more.push(name);
    }

    /// The header block of what is kept: `name: value` lines, in order, and a colon before those
    /// of trailers, which all are kept that may be.
    pub(crate) fn block(&self, headers: &HeaderMap, trailers: Option<&HeaderMap>) -> Bytes {
        // RFC 9110, section 7.6.1: what Connection names is hop by hop too.
        let named: Vec<&[u8]> = headers
            .get_all(header::CONNECTION)
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .collect();
        let may_be_kept = |name: &HeaderName| {
            let own = NEVER.contains(&name.as_str()) || *name == self.replayed;
            let named = named
                .iter()
                .any(|token| token.eq_ignore_ascii_case(name.as_str().as_bytes()));
            !own && !name.as_str().starts_with("proxy-") && !named
        };
        let kept = |name: &HeaderName| {
            (KEPT.contains(&name.as_str()) || self.more.contains(name)) && may_be_kept(name)
        };
        let lines = || headers.iter().filter(|(name, _)| kept(name));
        let length = lines().map(|(name, value)| name.as_str().len() + value.len() + 3);
        let mut block = BytesMut::with_capacity(length.sum());
        for (name, value) in lines() {
            push_line(&mut block, name, value);
        }
        for (name, value) in trailers.into_iter().flatten() {
            if may_be_kept(name) {
                block.put_u8(b':');
                push_line(&mut block, name, value);
            }
        }
        block.freeze()
    }
}

fn push_line(block: &mut BytesMut, name: &HeaderName, value: &HeaderValue) {
    block.put_slice(name.as_str().as_bytes());
    block.put_slice(b": ");
    block.put_slice(value.as_bytes());
    block.put_u8(b'\n');
}

/// Reads a header block: the headers, and the trailers if there are any.
///
/// # Errors
///
/// When a line is no header line: the record was changed by somebody else.
pub(crate) fn parse_block(block: &Bytes) -> Result<(HeaderMap, Option<HeaderMap>), StoreError> {
    let mut headers = HeaderMap::new();
    let mut trailers = HeaderMap::new();
    for line in block.split_inclusive(|byte| *byte == b'\n') {
        let (map, line) = match line.strip_prefix(b":") {
            Some(line) => (&mut trailers, line),
            None => (&mut headers, line),
        };
        let (name, value) = parse_line(line)
            .ok_or_else(|| StoreError::encoding("the stored header block has a malformed line"))?;
        map.append(name, value);
    }
    Ok((
        headers,
        Some(trailers).filter(|trailers| !trailers.is_empty()),
    ))
}

fn parse_line(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let line = line.strip_suffix(b"\n")?;
    let colon = line.iter().position(|byte| *byte == b':')?;
    let value = line[colon + 1..].strip_prefix(b" ")?;
    Some((
        HeaderName::from_bytes(&line[..colon]).ok()?,
        HeaderValue::from_bytes(value).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    /// R40, R45: kept headers and trailers come back line by line, in order, as raw bytes.
    #[test]
    fn kept_headers_round_trip() {
        let headers = map(&[
            ("location", b"/posts/1"),
            ("link", b"</a>; rel=a"),
            ("link", b"</b>; rel=b"),
            ("content-type", b"text/plain; x=\xff\x80"),
            ("etag", b""),
        ]);
        let block = HeaderPolicy::default().block(&headers, Some(&headers));
        assert_eq!(
            parse_block(&block).unwrap(),
            (headers.clone(), Some(headers))
        );
    }

    /// R41: hop-by-hop headers, what Connection names, and the mark itself are never kept.
    #[test]
    fn never_kept() {
        let mut policy = HeaderPolicy::default();
        for (name, _) in [
            ("connection", ""),
            ("x-hop", ""),
            ("date", ""),
            ("x-own", ""),
        ] {
            policy.keep(name.parse().unwrap());
        }
        let headers = map(&[
            ("connection", b"close, X-Hop ,ETag"),
            ("x-hop", b"1"),
            ("etag", b"\"1\""),
            ("date", b"now"),
            ("content-length", b"3"),
            ("transfer-encoding", b"chunked"),
            ("set-cookie", b"a=b"),
            ("idempotent-replayed", b"true"),
            ("x-own", b"kept"),
            ("x-other", b"not"),
        ]);
        assert_eq!(&policy.block(&headers, None)[..], b"x-own: kept\n");
    }

    /// R40: a block that somebody changed is an error, never a wrong header.
    #[test]
    fn malformed_blocks_are_refused() {
        for bad in [
            &b"x"[..],
            b"x: y",
            b"x:y\n",
            b": y\n",
            b"x y: z\n",
            b"\n",
            b"x: a\nb\n",
            b"x: \x00\n",
        ] {
            assert!(
                parse_block(&Bytes::copy_from_slice(bad)).is_err(),
                "{bad:?}"
            );
        }
        assert!(parse_block(&Bytes::new()).unwrap().0.is_empty());
    }
}
