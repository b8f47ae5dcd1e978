//! What is stored of a result, sealed with a key that the database does not have.

use std::fmt;

use bytes::Bytes;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use tower_idempotency::{BoxError, Codec, RecordId, StoredContent};

/// Leads each sealed value, so that what comes after it can change.
const VERSION: u8 = 1;

/// Random nonces of this length never meet by chance.
const NONCE_LEN: usize = 24;

/// Seals headers and body with XChaCha20-Poly1305.
///
/// A sealed value is a version byte, a random nonce, and the cipher text with its tag. The record's
/// identity and the name of the column are the associated data: a value that is moved to another
/// record, or from one column to the other, cannot be opened.
pub(crate) struct Sealed(XChaCha20Poly1305);

/// A stored value cannot be opened.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// It has no version, or another one.
    Version(Option<u8>),
    /// The key is another one, or the value was changed or moved.
    Tampered,
}

impl Sealed {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self(XChaCha20Poly1305::new(&Key::from(key)))
    }

    fn seal(&self, id: &RecordId, column: &str, plain: &[u8]) -> Result<Bytes, BoxError> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce)?;
        let aad = associated_data(id, column);
        let payload = Payload {
            msg: plain,
            aad: &aad,
        };
        let sealed = self.0.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| "the value is too long to be sealed")?;
        Ok([&[VERSION], &nonce[..], &sealed].concat().into())
    }

    fn open(&self, id: &RecordId, column: &str, stored: &[u8]) -> Result<Bytes, NotOpened> {
        let sealed = match stored.split_first() {
            Some((&VERSION, sealed)) => sealed,
            other => return Err(NotOpened::Version(other.map(|(version, _)| *version))),
        };
        let (nonce, sealed) = sealed
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(NotOpened::Tampered)?;
        let aad = associated_data(id, column);
        let payload = Payload {
            msg: sealed,
            aad: &aad,
        };
        let plain = self.0.decrypt(&XNonce::from(*nonce), payload);
        plain.map(Bytes::from).map_err(|_| NotOpened::Tampered)
    }
}

impl Codec for Sealed {
    fn encode(&self, id: &RecordId, content: StoredContent) -> Result<StoredContent, BoxError> {
        Ok(StoredContent {
            headers: self.seal(id, "headers", &content.headers)?,
            body: self.seal(id, "body", &content.body)?,
        })
    }

    fn decode(&self, id: &RecordId, content: StoredContent) -> Result<StoredContent, BoxError> {
        Ok(StoredContent {
            headers: self.open(id, "headers", &content.headers)?,
            body: self.open(id, "body", &content.body)?,
        })
    }
}

/// Each part behind its length, so that no two identities are one text.
fn associated_data(id: &RecordId, column: &str) -> Vec<u8> {
    let mut data = Vec::new();
    for part in [
        id.owner.as_str(),
        id.operation.as_str(),
        id.key.as_str(),
        column,
    ] {
        data.extend_from_slice(&(part.len() as u64).to_be_bytes());
        data.extend_from_slice(part.as_bytes());
    }
    data
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(Some(version)) => {
                write!(f, "the sealed value has the unknown version {version}")
            }
            Self::Version(None) => f.write_str("the sealed value is empty"),
            Self::Tampered => {
                f.write_str("the key is another one, or the sealed value was changed")
            }
        }
    }
}

impl std::error::Error for NotOpened {}
