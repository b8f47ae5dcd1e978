//! A record as it is stored, and the one decision that is made on it.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use http::StatusCode;

use crate::resource::ResourceRef;
use crate::{ClaimOutcome, ClaimToken, Fingerprint};

/// A record, read at one instant of the store's clock.
#[derive(Debug, Clone)]
pub struct Record {
    /// What has become of it.
    pub state: RecordState,
    /// When it was claimed, by the store's clock.
    pub claimed_at: SystemTime,
    /// What its request made, where the handler said so.
    pub resource_ref: Option<ResourceRef>,
}

/// What has become of a record.
#[derive(Debug, Clone)]
pub enum RecordState {
    /// Somebody is running it, or was.
    Claimed {
        /// The claim that holds it.
        token: ClaimToken,
        /// What the request is.
        fingerprint: Fingerprint,
        /// Whether its time was over when it was read.
        stale: bool,
    },
    /// Its effect is committed.
    Completed {
        /// The claim that committed it.
        token: ClaimToken,
        /// What the request was.
        fingerprint: Fingerprint,
        /// What was answered.
        response: StoredResponse,
        /// Whether its ttl was over when it was read.
        expired: bool,
    },
    /// What it made has been deleted.
    Tombstone,
}

/// A 2xx response as it is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The status. For a record whose outcome nobody knows, 500.
    pub status: StatusCode,
    /// What is replayed; `None` where it was not kept.
    pub content: Option<StoredContent>,
    /// What the request made, where the handler said so. Not part of the replay.
    pub resource_ref: Option<ResourceRef>,
}

/// The part of a response that is replayed byte for byte. Stores treat both as opaque bytes.
/// `Debug` shows their lengths.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredContent {
    /// The header block: `name: value` lines.
    pub headers: Bytes,
    /// The body.
    pub body: Bytes,
}

impl fmt::Debug for StoredContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (headers, body) = (self.headers.len(), self.body.len());
        write!(
            f,
            "StoredContent({headers} bytes of headers, {body} of body)"
        )
    }
}

impl StoredResponse {
    /// A response that is kept.
    #[must_use]
    pub fn kept(status: StatusCode, headers: impl Into<Bytes>, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            content: Some(StoredContent {
                headers: headers.into(),
                body: body.into(),
            }),
            resource_ref: None,
        }
    }

    /// A response whose status alone is remembered.
    #[must_use]
    pub fn not_kept(status: StatusCode) -> Self {
        Self {
            status,
            content: None,
            resource_ref: None,
        }
    }

    /// What stands for a request of which nobody knows whether it had an effect.
    #[must_use]
    pub fn outcome_unknown() -> Self {
        Self::not_kept(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Adds what the request made.
    #[must_use]
    pub fn with_resource_ref(mut self, resource_ref: Option<ResourceRef>) -> Self {
        self.resource_ref = resource_ref;
        self
    }
}

/// What a record means for an arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It answers the arrival.
    Answer(ClaimOutcome),
    /// A stale claim or an expired result: a new claim may replace it, fenced by this token.
    Replace {
        /// The token that the replacement must still find. No fence by itself: a completed record
        /// keeps it, so the replacement must find the state and the time that were decided on too.
        seen: ClaimToken,
        /// Whether it is the claim of somebody who went stale.
        stale: bool,
    },
}

impl Record {
    /// Decides what the record means for a request with that fingerprint: tombstone first, then
    /// expiry and staleness, then mismatch, then progress.
    #[must_use]
    pub fn decide(&self, arriving: &Fingerprint) -> Decision {
        match &self.state {
            RecordState::Tombstone => Decision::Answer(ClaimOutcome::Tombstone),
            RecordState::Claimed {
                token, stale: true, ..
            } => Decision::Replace {
                seen: *token,
                stale: true,
            },
            RecordState::Completed {
                token,
                expired: true,
                ..
            } => Decision::Replace {
                seen: *token,
                stale: false,
            },
            RecordState::Claimed { fingerprint, .. }
            | RecordState::Completed { fingerprint, .. }
                if fingerprint != arriving =>
            {
                Decision::Answer(ClaimOutcome::Mismatch)
            }
            RecordState::Claimed { .. } => Decision::Answer(ClaimOutcome::InProgress),
            RecordState::Completed { response, .. } => {
                Decision::Answer(ClaimOutcome::Completed(response.clone()))
            }
        }
    }

    /// The token of the claim that holds or completed it.
    #[must_use]
    pub fn token(&self) -> Option<ClaimToken> {
        match &self.state {
            RecordState::Claimed { token, .. } | RecordState::Completed { token, .. } => {
                Some(*token)
            }
            RecordState::Tombstone => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(text: &str) -> Fingerprint {
        Fingerprint::from_stored(text)
    }

    fn record(state: RecordState) -> Record {
        Record {
            state,
            claimed_at: SystemTime::UNIX_EPOCH,
            resource_ref: None,
        }
    }

    fn claimed(stale: bool) -> Record {
        let token = ClaimToken::from_bytes([1; 16]);
        record(RecordState::Claimed {
            token,
            fingerprint: fingerprint("a"),
            stale,
        })
    }

    fn completed(expired: bool) -> Record {
        let token = ClaimToken::from_bytes([2; 16]);
        let response = StoredResponse::kept(StatusCode::CREATED, "", "body");
        record(RecordState::Completed {
            token,
            fingerprint: fingerprint("a"),
            response,
            expired,
        })
    }

    /// R30: tombstone first, then expiry, staleness, mismatch, in progress.
    #[test]
    fn order_of_decisions() {
        let (same, other) = (fingerprint("a"), fingerprint("b"));
        let tombstone = record(RecordState::Tombstone);
        for arriving in [&same, &other] {
            assert_eq!(
                tombstone.decide(arriving),
                Decision::Answer(ClaimOutcome::Tombstone)
            );
            let seen = ClaimToken::from_bytes([1; 16]);
            assert_eq!(
                claimed(true).decide(arriving),
                Decision::Replace { seen, stale: true }
            );
            let seen = ClaimToken::from_bytes([2; 16]);
            assert_eq!(
                completed(true).decide(arriving),
                Decision::Replace { seen, stale: false }
            );
        }
        assert_eq!(
            claimed(false).decide(&other),
            Decision::Answer(ClaimOutcome::Mismatch)
        );
        assert_eq!(
            completed(false).decide(&other),
            Decision::Answer(ClaimOutcome::Mismatch)
        );
        assert_eq!(
            claimed(false).decide(&same),
            Decision::Answer(ClaimOutcome::InProgress)
        );
        let response = StoredResponse::kept(StatusCode::CREATED, "", "body");
        assert_eq!(
            completed(false).decide(&same),
            Decision::Answer(ClaimOutcome::Completed(response))
        );
    }

    /// A tombstone is nobody's; any other record is its claim's.
    #[test]
    fn a_record_has_the_token_of_its_claim() {
        let token = |byte| Some(ClaimToken::from_bytes([byte; 16]));
        assert_eq!(claimed(false).token(), token(1));
        assert_eq!(completed(false).token(), token(2));
        assert_eq!(record(RecordState::Tombstone).token(), None);
    }
}
