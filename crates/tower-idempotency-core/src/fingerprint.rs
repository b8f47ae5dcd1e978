//! The fingerprint `hs1` of a request, frozen: a change of any rule is a new tag.

use std::collections::BTreeMap;
use std::fmt;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Method};
use sha2::{Digest, Sha256};

const TAG: &str = "hs1";

/// A request's digest: `hs1:` and 64 lower-case hexadecimal digits.
///
/// Two arrivals of one key must have the same fingerprint, or the later one is refused.
/// `protocol.md` has the format, with test vectors.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(Box<str>);

impl Fingerprint {
    /// The length of the text, in bytes.
    pub const LEN: usize = 68;

    /// Starts with the method, as it was received.
    #[must_use]
    pub fn builder(method: &Method) -> FingerprintBuilder {
        FingerprintBuilder::default().field("method", method.as_str().as_bytes())
    }

    /// Takes a fingerprint as it is stored, of this or any later tag.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The text that is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Collects the fields of a request's preimage. `Debug` shows their names.
#[derive(Clone, Default)]
pub struct FingerprintBuilder {
    // Keeps names strictly ascending by bytes, without duplicates.
    fields: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for FingerprintBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.fields.keys()).finish()
    }
}

impl FingerprintBuilder {
    fn field(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.fields.insert(name.into(), value.into());
        self
    }

    /// The raw path of the original target, not decoded. An empty path is `/`.
    #[must_use]
    pub fn path(self, path: &str) -> Self {
        self.field("path", if path.is_empty() { "/" } else { path })
    }

    /// The raw query without `?`; `None` where the target has no `?`.
    #[must_use]
    pub fn query(self, query: Option<&str>) -> Self {
        match query {
            Some(query) => self.field("query", query),
            None => self,
        }
    }

    /// Content-Type or Content-Encoding, trimmed of optional white space, otherwise as received.
    #[must_use]
    pub fn content_header(self, name: &HeaderName, value: &[u8]) -> Self {
        self.field(name.as_str(), value.trim_ascii())
    }

    /// As [`content_header`](Self::content_header), where the body's canonical form counts: the
    /// Content-Type of a multipart body is then written under another name, without its boundary,
    /// which the canonical form has seen to.
    #[must_use]
    pub fn canonical_content_header(self, name: &HeaderName, value: &[u8]) -> Self {
        const MULTIPART: &[u8] = b"multipart/";
        let value = value.trim_ascii();
        let multipart = value
            .get(..MULTIPART.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(MULTIPART));
        if *name != CONTENT_TYPE || !multipart {
            return self.content_header(name, value);
        }
        // RFC 2046, section 5.1.1: a boundary has no semicolon.
        let counts = |parameter: &&[u8]| {
            let mut halves = parameter.splitn(2, |byte| *byte == b'=');
            let name = halves.next().unwrap_or_default().trim_ascii();
            !name.eq_ignore_ascii_case(b"boundary")
        };
        let parts: Vec<&[u8]> = value.split(|byte| *byte == b';').filter(counts).collect();
        self.field("content-type-custom", parts.join(&b';'))
    }

    /// A further request header that counts; nothing where there is none.
    ///
    /// One line stands for itself. Several are written one after the other, each behind its
    /// length: a line has no NUL, and a length begins with one, so neither looks like the other.
    #[must_use]
    pub fn bound_header(self, name: &HeaderName, headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all(name).iter();
        let value = match (lines.next(), lines.next()) {
            (None, _) => return self,
            (Some(line), None) => line.as_bytes().to_vec(),
            (Some(first), Some(second)) => {
                let mut value = Vec::new();
                for line in [first, second].into_iter().chain(lines) {
                    push_prefixed(&mut value, line.as_bytes());
                }
                value
            }
        };
        self.field(format!("h:{name}"), value)
    }

    /// The SHA-256 of the body as the layer sees it.
    #[must_use]
    pub fn body_sha256(self, digest: [u8; 32]) -> Self {
        self.field("body-sha256", digest)
    }

    /// The SHA-256 of what a function of the user makes of the body.
    #[must_use]
    pub fn body_custom_sha256(self, digest: [u8; 32]) -> Self {
        self.field("body-custom-sha256", digest)
    }

    /// What is hashed.
    #[must_use]
    pub fn preimage(&self) -> Vec<u8> {
        let mut preimage = Vec::with_capacity(256);
        preimage.extend_from_slice(TAG.as_bytes());
        preimage.push(0);
        let count = u32::try_from(self.fields.len()).unwrap_or(u32::MAX);
        preimage.extend_from_slice(&count.to_be_bytes());
        for (name, value) in &self.fields {
            push_prefixed(&mut preimage, name.as_bytes());
            push_prefixed(&mut preimage, value);
        }
        preimage
    }

    /// The fingerprint.
    #[must_use]
    pub fn finish(&self) -> Fingerprint {
        use fmt::Write as _;

        let mut text = String::with_capacity(Fingerprint::LEN);
        text.push_str(TAG);
        text.push(':');
        for byte in Sha256::digest(self.preimage()) {
            let _ = write!(text, "{byte:02x}");
        }
        Fingerprint(text.into())
    }
}

fn push_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
