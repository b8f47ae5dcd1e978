//! The fingerprint `hs1` of a request, frozen: a change of any rule is a new tag.

use std::fmt;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Method};
use sha2::{Digest, Sha256};

const TAG: &str = "hs1";

/// A request's digest: `hs1:` and 64 lower-case hexadecimal digits.
///
/// Two arrivals of one key must have the same fingerprint, or the later one is refused.
/// `protocol.md` has the format, with test vectors.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(Arc<str>);

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
#[derive(Clone)]
pub struct FingerprintBuilder {
    /// Names and values, one behind the other.
    bytes: Vec<u8>,
    /// Their names strictly ascending by bytes, without duplicates.
    fields: Vec<Field>,
}

/// Where a field is.
#[derive(Clone, Copy)]
struct Field {
    start: usize,
    value: usize,
    end: usize,
}

impl Default for FingerprintBuilder {
    fn default() -> Self {
        // As much as most requests have.
        Self {
            bytes: Vec::with_capacity(256),
            fields: Vec::with_capacity(8),
        }
    }
}

impl fmt::Debug for FingerprintBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.fields().map(|(name, _)| String::from_utf8_lossy(name));
        f.debug_set().entries(names).finish()
    }
}

impl FingerprintBuilder {
    fn field(self, name: &str, value: &[u8]) -> Self {
        self.field_of(&[name], &[value])
    }

    /// A field whose name and value are in parts. The last one of a name counts.
    fn field_of(mut self, name: &[&str], value: &[&[u8]]) -> Self {
        let start = self.bytes.len();
        name.iter()
            .for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
        let middle = self.bytes.len();
        value
            .iter()
            .for_each(|part| self.bytes.extend_from_slice(part));
        let field = Field {
            start,
            value: middle,
            end: self.bytes.len(),
        };
        let name = &self.bytes[start..middle];
        let named = |field: &Field| self.bytes[field.start..field.value].cmp(name);
        match self.fields.binary_search_by(named) {
            Ok(there) => self.fields[there] = field,
            Err(place) => self.fields.insert(place, field),
        }
        self
    }

    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| {
            let name = &self.bytes[field.start..field.value];
            (name, &self.bytes[field.value..field.end])
        })
    }

    /// The raw path of the original target, not decoded. An empty path is `/`.
    #[must_use]
    pub fn path(self, path: &str) -> Self {
        let path = if path.is_empty() { "/" } else { path };
        self.field("path", path.as_bytes())
    }

    /// The raw query without `?`; `None` where the target has no `?`.
    #[must_use]
    pub fn query(self, query: Option<&str>) -> Self {
        match query {
            Some(query) => self.field("query", query.as_bytes()),
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
        self.field("content-type-custom", &parts.join(&b';'))
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
        self.field_of(&["h:", name.as_str()], &[&value])
    }

    /// The SHA-256 of the body as the layer sees it.
    #[must_use]
    pub fn body_sha256(self, digest: [u8; 32]) -> Self {
        self.field("body-sha256", &digest)
    }

    /// The SHA-256 of what a function of the user makes of the body.
    #[must_use]
    pub fn body_custom_sha256(self, digest: [u8; 32]) -> Self {
        self.field("body-custom-sha256", &digest)
    }

    /// What is hashed.
    #[must_use]
    pub fn preimage(&self) -> Vec<u8> {
        let mut preimage = Vec::with_capacity(512);
        self.write_preimage(|bytes| preimage.extend_from_slice(bytes));
        preimage
    }

    fn write_preimage(&self, mut write: impl FnMut(&[u8])) {
        write(TAG.as_bytes());
        write(&[0]);
        let count = u32::try_from(self.fields.len()).unwrap_or(u32::MAX);
        write(&count.to_be_bytes());
        for (name, value) in self.fields() {
            for part in [name, value] {
                write(&(part.len() as u64).to_be_bytes());
                write(part);
            }
        }
    }

    /// The fingerprint.
    #[must_use]
    pub fn finish(&self) -> Fingerprint {
        let mut hasher = Sha256::new();
        self.write_preimage(|bytes| hasher.update(bytes));
        let mut text = [0; Fingerprint::LEN];
        let (tag, digits) = text.split_at_mut(TAG.len() + 1);
        tag[..TAG.len()].copy_from_slice(TAG.as_bytes());
        tag[TAG.len()] = b':';
        for (pair, byte) in digits.chunks_exact_mut(2).zip(hasher.finalize()) {
            pair.copy_from_slice(&hex(byte));
        }
        Fingerprint(String::from_utf8_lossy(&text).into())
    }
}

/// The two lower-case hexadecimal digits of a byte.
pub(crate) fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)])
}

fn push_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
