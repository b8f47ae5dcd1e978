//! A claim: one arrival's right to run, until it is completed, freed or stale.

use std::fmt;
use std::time::Duration;

use crate::record::StoredResponse;
use crate::{Fingerprint, IdempotencyKey, Operation, Owner};

/// The identity of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId {
    /// Whose key it is.
    pub owner: Owner,
    /// What the key is for.
    pub operation: Operation,
    /// The client's key.
    pub key: IdempotencyKey,
}

/// The proof that a record is still in the hands of one claim: 16 random bytes, fresh for every
/// claim. Every change of a claimed record names it. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimToken([u8; 16]);

impl ClaimToken {
    /// Draws a token.
    ///
    /// # Panics
    ///
    /// When the operating system has no randomness: then no claim can be fenced.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system provides randomness");
        Self(bytes)
    }

    /// Takes a token as it is stored.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes that are stored.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimToken(..)")
    }
}

/// What an arrival asks of the store.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The record it wants.
    pub id: RecordId,
    /// The token it will hold.
    pub token: ClaimToken,
    /// What the request is.
    pub fingerprint: Fingerprint,
    /// How long the claim lives without a sign of life, by the store's clock.
    pub stale_after: Duration,
    /// How long its completed record is kept; `None` for ever.
    pub ttl: Option<Duration>,
}

impl Claim {
    /// A claim with a fresh token, the default staleness of five minutes and no ttl.
    #[must_use]
    pub fn new(id: RecordId, fingerprint: Fingerprint) -> Self {
        Self {
            id,
            token: ClaimToken::random(),
            fingerprint,
            stale_after: Duration::from_secs(300),
            ttl: None,
        }
    }
}

/// How the store decided on a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The record is this claim's, committed: the handler may run.
    Acquired {
        /// Whether the claim of somebody who went stale was taken over.
        taken_over: bool,
    },
    /// The same request was completed before.
    Completed(StoredResponse),
    /// The same request is running.
    InProgress,
    /// The key was used for another request.
    Mismatch,
    /// What the key made has been deleted.
    Tombstone,
}

#[cfg(test)]
mod tests {
    use super::ClaimToken;

    /// A token comes back from the store as it went there, and no two are drawn alike.
    #[test]
    fn a_token_is_its_bytes() {
        let token = ClaimToken::random();
        assert_eq!(ClaimToken::from_bytes(*token.as_bytes()), token);
        assert_eq!(ClaimToken::from_bytes([7; 16]).as_bytes(), &[7; 16]);
        assert_ne!(ClaimToken::random(), token);
    }
}
