//! The `Idempotency-Key` header field.
//!
//! A value that begins with a double quote is a String item of RFC 9651 (section 4.2), whose
//! parameters are parsed and ignored. Anything else is a bare value, as most clients send it.

mod parameters;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use crate::fingerprint::hex;

/// A client's key for one write: 1 to 255 bytes of printable ASCII, compared byte for byte.
///
/// `Debug` shows a short hash: a key is a capability to read a result, so it is never logged whole
/// and never echoed.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey(Arc<str>);

/// Which forms of a key are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyGrammar {
    /// Quoted strings and bare values.
    #[default]
    Compatible,
    /// Quoted strings only, as draft-ietf-httpapi-idempotency-key-header asks for.
    Strict,
}

/// Why a key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no field line.
    Missing,
    /// There is more than one field line.
    Repeated,
    /// It has no bytes, or blanks only.
    Empty,
    /// It is longer than [`IdempotencyKey::MAX_LEN`] bytes.
    TooLong,
    /// It has a byte that is not allowed, or a quoted string that does not end.
    Malformed,
    /// It is a bare value, and the grammar is strict.
    NotQuoted,
}

impl IdempotencyKey {
    /// The greatest length after unescaping, in bytes.
    pub const MAX_LEN: usize = 255;

    /// Takes the one field line of that name.
    ///
    /// # Errors
    ///
    /// When there is none, more than one (even if they are equal), or one that the grammar refuses.
    pub fn from_headers(
        headers: &HeaderMap,
        name: &HeaderName,
        grammar: KeyGrammar,
    ) -> Result<Self, KeyError> {
        let mut lines = headers.get_all(name).iter();
        let line = lines.next().ok_or(KeyError::Missing)?;
        if lines.next().is_some() {
            return Err(KeyError::Repeated);
        }
        Self::parse(line.as_bytes(), grammar)
    }

    /// Parses a field value.
    ///
    /// ```
    /// use tower_idempotency_core::{IdempotencyKey, KeyGrammar};
    ///
    /// let quoted = IdempotencyKey::parse(br#""abc";v=1"#, KeyGrammar::Compatible)?;
    /// let bare = IdempotencyKey::parse(b"abc", KeyGrammar::Compatible)?;
    /// assert_eq!(quoted, bare);
    /// # Ok::<_, tower_idempotency_core::KeyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the grammar refuses the value.
    pub fn parse(value: &[u8], grammar: KeyGrammar) -> Result<Self, KeyError> {
        // RFC 9110, section 5.5: optional white space around a field value is not part of it.
        let value = trim(value);
        let key = match (value.first(), grammar) {
            (None, _) => return Err(KeyError::Empty),
            (Some(b'"'), _) => parse_string(&value[1..])?.into(),
            (Some(_), KeyGrammar::Strict) => return Err(KeyError::NotQuoted),
            (Some(_), KeyGrammar::Compatible) => parse_bare(value)?,
        };
        Self::check(&key)
    }

    /// Takes a key as it is stored, unescaped.
    ///
    /// # Errors
    ///
    /// When no header could have carried it.
    pub fn from_text(key: &str) -> Result<Self, KeyError> {
        if !key.bytes().all(is_printable) {
            return Err(KeyError::Malformed);
        }
        Self::check(key)
    }

    fn check(key: &str) -> Result<Self, KeyError> {
        if key.bytes().all(|byte| byte == b' ') {
            return Err(KeyError::Empty);
        }
        if key.len() > Self::MAX_LEN {
            return Err(KeyError::TooLong);
        }
        Ok(Self(key.into()))
    }

    /// The key, unescaped.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 4 bytes of the key's SHA-256 in hex: enough to find a request's lines in a log.
    #[must_use]
    pub fn short_hash(&self) -> String {
        ShortHash(self).to_string()
    }
}

/// [`IdempotencyKey::short_hash`], made only where somebody writes it.
pub(crate) struct ShortHash<'a>(pub(crate) &'a IdempotencyKey);

impl fmt::Display for ShortHash<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = Sha256::digest(self.0.as_str().as_bytes());
        let digits = digest[..4].iter().flat_map(|byte| hex(*byte));
        digits
            .map(char::from)
            .try_for_each(|digit| f.write_char(digit))
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({})", ShortHash(self))
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the key is missing",
            Self::Repeated => "there is more than one key",
            Self::Empty => "the key is empty",
            Self::TooLong => "the key is longer than 255 bytes",
            Self::Malformed => "the key is malformed",
            Self::NotQuoted => "the key is not a quoted string",
        })
    }
}

impl std::error::Error for KeyError {}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// %x20-7E, all that an RFC 9651 String can hold.
fn is_printable(byte: u8) -> bool {
    (0x20..=0x7e).contains(&byte)
}

/// What follows the opening quote: RFC 9651, section 4.2.5, and parameters behind the string.
fn parse_string(mut rest: &[u8]) -> Result<String, KeyError> {
    let mut key = String::new();
    loop {
        let byte = match rest {
            [b'"', rest @ ..] => {
                parameters::skip(rest).ok_or(KeyError::Malformed)?;
                return Ok(key);
            }
            [b'\\', escaped @ (b'"' | b'\\'), tail @ ..] => {
                rest = tail;
                *escaped
            }
            [b'\\', ..] | [] => return Err(KeyError::Malformed),
            [byte, tail @ ..] => {
                rest = tail;
                *byte
            }
        };
        if !is_printable(byte) {
            return Err(KeyError::Malformed);
        }
        key.push(char::from(byte));
    }
}

/// Visible ASCII without what would make it a list, have parameters or look half quoted.
fn parse_bare(value: &[u8]) -> Result<Cow<'_, str>, KeyError> {
    let allowed = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\,;".contains(byte);
    if !value.iter().all(allowed) {
        return Err(KeyError::Malformed);
    }
    Ok(String::from_utf8_lossy(value))
}

#[cfg(test)]
mod tests;
