//! The rows of a flawed store.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use tower_idempotency_core::{
    Claim, ClaimToken, Fingerprint, Record, RecordId, RecordState, ResourceRef, StoredContent,
    StoredResponse, TombstoneResource,
};

use crate::flaw::Flaw;

/// Owner, operation and key as they are compared.
pub(crate) type Place = (String, String, String);

#[derive(Default)]
pub(crate) struct Data {
    pub(crate) rows: BTreeMap<Place, Row>,
    pub(crate) effects: HashMap<String, u64>,
    /// Keys with a transaction that has begun.
    pub(crate) open: Vec<Place>,
}

impl Data {
    pub(crate) fn add_effects<T: AsRef<str>>(&mut self, writes: impl IntoIterator<Item = T>) {
        for what in writes {
            *self.effects.entry(what.as_ref().to_owned()).or_default() += 1;
        }
    }

    pub(crate) fn visible(&self, place: &Place, handle: usize) -> Option<&Row> {
        let row = self.rows.get(place)?;
        row.only.is_none_or(|only| only == handle).then_some(row)
    }

    pub(crate) fn bury(&mut self, resources: &[TombstoneResource], flaw: Flaw) {
        let most = if flaw == Flaw::BuriesOne {
            1
        } else {
            usize::MAX
        };
        for resource in resources {
            let made = self
                .rows
                .values_mut()
                .filter(|row| row.is_of(resource, flaw));
            made.take(most).for_each(|row| row.bury(flaw));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Claimed,
    Completed,
    Tombstone,
}

#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) id: RecordId,
    pub(crate) state: State,
    pub(crate) token: ClaimToken,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) response: Option<StoredResponse>,
    pub(crate) resource_ref: Option<ResourceRef>,
    pub(crate) claimed_at: Duration,
    pub(crate) stale_at: Duration,
    pub(crate) expires_at: Option<Duration>,
    /// The only handle that sees it, where it was not committed.
    pub(crate) only: Option<usize>,
}

impl Row {
    pub(crate) fn claimed(claim: &Claim, now: Duration) -> Self {
        Self {
            id: claim.id.clone(),
            state: State::Claimed,
            token: claim.token,
            fingerprint: claim.fingerprint.clone(),
            response: None,
            resource_ref: None,
            claimed_at: now,
            stale_at: now + claim.stale_after,
            expires_at: None,
            only: None,
        }
    }

    pub(crate) fn complete(&mut self, response: &StoredResponse, now: Duration, flaw: Flaw) {
        self.state = State::Completed;
        self.response = Some(stored(response, flaw));
        self.resource_ref = response.resource_ref.as_ref().map(|found| {
            let text = found.as_str();
            let end = text.floor_char_boundary(if flaw == Flaw::ReferenceCut { 64 } else { 255 });
            ResourceRef::new(&text[..end])
        });
        if flaw == Flaw::TokenDropped {
            self.token = ClaimToken::from_bytes([0; 16]);
        }
        if flaw == Flaw::ForeverIsAYear && self.expires_at.is_none() {
            self.expires_at = Some(now + Duration::from_secs(365 * 24 * 3600));
        }
    }

    pub(crate) fn is_of(&self, resource: &TombstoneResource, flaw: Flaw) -> bool {
        let ours = self.id.owner == resource.owner || flaw == Flaw::BuriesStrangers;
        let made = match self.state {
            State::Completed => self.resource_ref.as_ref() == Some(&resource.resource_ref),
            State::Claimed => flaw == Flaw::BuriesClaims,
            State::Tombstone => false,
        };
        ours && made && self.id.operation == resource.operation
    }

    pub(crate) fn bury(&mut self, flaw: Flaw) {
        match flaw {
            Flaw::TombstoneKeepsResult => {}
            Flaw::TombstoneExpires => self.state = State::Tombstone,
            _ => {
                self.state = State::Tombstone;
                self.expires_at = None;
            }
        }
    }

    pub(crate) fn expired(&self, now: Duration, flaw: Flaw) -> bool {
        flaw != Flaw::ExpiryIgnored && self.expires_at.is_some_and(|at| at <= now)
    }

    pub(crate) fn read(&self, now: Duration, flaw: Flaw) -> Record {
        let stale = match flaw {
            Flaw::AlwaysStale => true,
            Flaw::NeverStale => false,
            _ => self.stale_at <= now,
        };
        let (token, fingerprint) = (self.token, self.fingerprint.clone());
        let state = match (self.state, &self.response) {
            (State::Completed, Some(response)) => RecordState::Completed {
                token,
                fingerprint,
                response: response.clone(),
                expired: self.expired(now, flaw),
            },
            (State::Tombstone, _) => RecordState::Tombstone,
            (State::Claimed | State::Completed, _) => RecordState::Claimed {
                token,
                fingerprint,
                stale,
            },
        };
        Record {
            state,
            claimed_at: SystemTime::UNIX_EPOCH + self.claimed_at,
            resource_ref: self.resource_ref.clone(),
        }
    }
}

fn stored(response: &StoredResponse, flaw: Flaw) -> StoredResponse {
    let mut stored = response.clone();
    if flaw == Flaw::StatusForgotten && stored.status.is_success() {
        stored.status = http::StatusCode::OK;
    }
    match (flaw, &mut stored.content) {
        (Flaw::LossyBytes, Some(content)) => {
            let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned().into();
            *content = StoredContent {
                headers: lossy(&content.headers),
                body: lossy(&content.body),
            };
        }
        (Flaw::BodyCut, Some(content)) => content.body.truncate(64 << 10),
        (Flaw::EmptyIsNotKept, Some(content)) if content.body.is_empty() => stored.content = None,
        (Flaw::NotKeptIsEmpty, None) => {
            stored =
                StoredResponse::kept(stored.status, "", "").with_resource_ref(stored.resource_ref);
        }
        _ => {}
    }
    stored
}

/// The place of a record, as that flaw compares identities.
pub(crate) fn place(id: &RecordId, flaw: Flaw) -> Place {
    let (mut owner, mut operation, mut key) = (
        id.owner.as_str().to_owned(),
        id.operation.as_str().to_owned(),
        id.key.as_str().to_owned(),
    );
    match flaw {
        Flaw::KeysFolded => key.make_ascii_lowercase(),
        Flaw::KeysTrimmed => key.truncate(key.trim_end().len()),
        Flaw::KeysCut => key.truncate(250),
        Flaw::KeysUnescaped => key = key.replace("\\\\", "\\"),
        Flaw::OwnersIgnored => owner.clear(),
        Flaw::OwnersFolded => owner = owner.to_lowercase(),
        Flaw::OperationsIgnored => operation.clear(),
        Flaw::OperationsFolded => operation.make_ascii_lowercase(),
        Flaw::IdentityJoined => {
            key = format!("{owner}:{key}");
            owner.clear();
        }
        _ => {}
    }
    (owner, operation, key)
}
