//! A record in memory.

use std::time::{Duration, SystemTime};

use crate::claim::{Claim, ClaimToken, RecordId};
use crate::fingerprint::Fingerprint;
use crate::record::{Record, RecordState, StoredResponse};
use crate::resource::{ResourceRef, TombstoneResource};

#[derive(Clone)]
pub(super) struct Row {
    pub(super) state: State,
    claimed_at: Duration,
    pub(super) stale_at: Duration,
    resource_ref: Option<ResourceRef>,
}

#[derive(Clone)]
pub(super) enum State {
    Claimed {
        token: ClaimToken,
        fingerprint: Fingerprint,
    },
    Completed {
        token: ClaimToken,
        fingerprint: Fingerprint,
        response: StoredResponse,
        expires_at: Option<Duration>,
    },
    Tombstone,
}

impl Row {
    pub(super) fn claimed(claim: &Claim, now: Duration) -> Self {
        let state = State::Claimed {
            token: claim.token,
            fingerprint: claim.fingerprint.clone(),
        };
        Self {
            state,
            claimed_at: now,
            stale_at: now + claim.stale_after,
            resource_ref: None,
        }
    }

    /// Whether the row is still that claim's, and claimed.
    pub(super) fn held_by(&self, wanted: &ClaimToken) -> bool {
        matches!(&self.state, State::Claimed { token, .. } if token == wanted)
    }

    pub(super) fn complete(&mut self, response: StoredResponse, expires_at: Option<Duration>) {
        if let State::Claimed { token, fingerprint } = &self.state {
            self.resource_ref.clone_from(&response.resource_ref);
            self.state = State::Completed {
                token: *token,
                fingerprint: fingerprint.clone(),
                response,
                expires_at,
            };
        }
    }

    /// Whether the row is a completed record of what that resource was made by.
    pub(super) fn is_of(&self, id: &RecordId, resource: &TombstoneResource) -> bool {
        id.owner == resource.owner
            && id.operation == resource.operation
            && matches!(self.state, State::Completed { .. })
            && self.resource_ref.as_ref() == Some(&resource.resource_ref)
    }

    pub(super) fn read(&self, now: Duration) -> Record {
        let state = match self.state.clone() {
            State::Claimed { token, fingerprint } => RecordState::Claimed {
                token,
                fingerprint,
                stale: self.stale_at <= now,
            },
            State::Completed {
                token,
                fingerprint,
                response,
                expires_at,
            } => {
                let expired = expires_at.is_some_and(|at| at <= now);
                RecordState::Completed {
                    token,
                    fingerprint,
                    response,
                    expired,
                }
            }
            State::Tombstone => RecordState::Tombstone,
        };
        Record {
            state,
            claimed_at: SystemTime::UNIX_EPOCH + self.claimed_at,
            resource_ref: self.resource_ref.clone(),
        }
    }
}
