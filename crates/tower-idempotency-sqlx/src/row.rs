//! From a row to a record: data is parsed once, and what cannot be right is an error.

use std::fmt;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use tower_idempotency_core::{
    ClaimToken, Fingerprint, Record, RecordState, ResourceRef, StoreError, StoredResponse,
};

/// The columns that every reading statement returns, in this order. `Debug` shows
/// the state alone: there are bodies and tokens among the others.
pub struct Row {
    pub(crate) state: String,
    pub(crate) claim_token: Option<Vec<u8>>,
    pub(crate) claimed_at_ms: i64,
    pub(crate) stale: bool,
    pub(crate) fingerprint: Option<String>,
    pub(crate) status: Option<i64>,
    pub(crate) kept: Option<bool>,
    pub(crate) headers: Option<Vec<u8>>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) resource_ref: Option<String>,
    pub(crate) expired: bool,
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Row {
    /// What a claiming statement that returns nothing would return of a record which it just made.
    #[cfg(feature = "mysql")]
    pub(crate) fn acquired() -> Self {
        Self {
            state: "acquired".into(),
            claim_token: None,
            claimed_at_ms: 0,
            stale: false,
            fingerprint: None,
            status: None,
            kept: None,
            headers: None,
            body: None,
            resource_ref: None,
            expired: false,
        }
    }

    /// The state that a claiming statement gives a record which it just made.
    pub(crate) fn is_acquired(&self) -> bool {
        self.state == "acquired"
    }

    pub(crate) fn into_record(self) -> Result<Record, StoreError> {
        let malformed = || StoreError::encoding("the record's row breaks its own constraints");
        let resource_ref = self
            .resource_ref
            .map(ResourceRef::try_new)
            .transpose()
            .map_err(StoreError::encoding)?;
        let claimed_at = u64::try_from(self.claimed_at_ms).map_err(StoreError::encoding)?;
        let token = || -> Option<ClaimToken> {
            Some(ClaimToken::from_bytes(
                self.claim_token.as_deref()?.try_into().ok()?,
            ))
        };
        let fingerprint = || self.fingerprint.as_deref().map(Fingerprint::from_stored);
        let state = match self.state.as_str() {
            "tombstone" => RecordState::Tombstone,
            "claimed" => RecordState::Claimed {
                token: token().ok_or_else(malformed)?,
                fingerprint: fingerprint().ok_or_else(malformed)?,
                stale: self.stale,
            },
            "completed" => {
                let status = self.status.and_then(|status| u16::try_from(status).ok());
                let status = status
                    .and_then(|status| StatusCode::from_u16(status).ok())
                    .ok_or_else(malformed)?;
                let token = token().ok_or_else(malformed)?;
                let fingerprint = fingerprint().ok_or_else(malformed)?;
                let response = match (self.kept, self.headers, self.body) {
                    (Some(true), Some(headers), Some(body)) => {
                        StoredResponse::kept(status, headers, body)
                    }
                    (Some(false), None, None) => StoredResponse::not_kept(status),
                    _ => return Err(malformed()),
                };
                RecordState::Completed {
                    token,
                    fingerprint,
                    response: response.with_resource_ref(resource_ref.clone()),
                    expired: self.expired,
                }
            }
            _ => return Err(malformed()),
        };
        Ok(Record {
            state,
            claimed_at: SystemTime::UNIX_EPOCH + Duration::from_millis(claimed_at),
            resource_ref,
        })
    }
}
