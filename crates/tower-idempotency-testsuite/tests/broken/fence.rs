//! How a flawed store decides, and what it compares before it changes a row.

use std::time::Duration;

use tower_idempotency_core::{
    Claim, ClaimOutcome, ClaimToken, Decision, Record, RecordId, RecordState,
};

use crate::flaw::Flaw;
use crate::rows::{Data, Row, State, place};
use crate::store::FlawedStore;
use crate::tx::Pending;

impl FlawedStore {
    pub(crate) fn decide(&self, record: &Record, claim: &Claim) -> Decision {
        let mut record = record.clone();
        match &mut record.state {
            RecordState::Claimed { stale, .. } if self.is(Flaw::StalenessOfArrival) => {
                let claimed_at = record.claimed_at.duration_since(std::time::UNIX_EPOCH);
                let claimed_at = claimed_at.expect("no time is before the epoch");
                *stale = claimed_at + claim.stale_after <= self.now();
            }
            RecordState::Claimed { fingerprint, .. }
            | RecordState::Completed { fingerprint, .. }
                if self.is(Flaw::MismatchFirst) && *fingerprint != claim.fingerprint =>
            {
                return Decision::Answer(ClaimOutcome::Mismatch);
            }
            RecordState::Claimed { fingerprint, .. }
            | RecordState::Completed { fingerprint, .. }
                if self.is(Flaw::FingerprintIgnored) =>
            {
                *fingerprint = claim.fingerprint.clone();
            }
            _ => {}
        }
        match record.decide(&claim.fingerprint) {
            Decision::Answer(ClaimOutcome::Completed(_)) if self.is(Flaw::CompletedInProgress) => {
                Decision::Answer(ClaimOutcome::InProgress)
            }
            decision => decision,
        }
    }

    /// What a tombstone answers with that flaw; `None` where it answers as it should.
    pub(crate) fn tombstone(&self, claim: &Claim) -> Option<Decision> {
        let now = self.now();
        let data = self.data();
        let row = data.rows.get(&place(&claim.id, self.flaw))?;
        if row.state != State::Tombstone {
            return None;
        }
        match self.flaw {
            Flaw::TombstoneMismatch if row.fingerprint != claim.fingerprint => {
                Some(Decision::Answer(ClaimOutcome::Mismatch))
            }
            Flaw::TombstoneExpires if row.expired(now, self.flaw) => Some(Decision::Replace {
                seen: row.token,
                stale: false,
            }),
            _ => None,
        }
    }

    /// Changes a record that is still claimed with that token, or does not look.
    pub(crate) fn change(
        &self,
        id: &RecordId,
        token: &ClaimToken,
        unfenced: Flaw,
        change: impl FnOnce(&mut Data, Duration),
    ) -> bool {
        let now = self.now();
        let mut data = self.data();
        let held = data.rows.get(&place(id, self.flaw)).is_some_and(|row| {
            (row.state == State::Claimed || self.is(Flaw::StateUnfenced))
                && (row.token == *token || self.is(unfenced))
        });
        if held {
            change(&mut data, now);
        }
        held
    }

    pub(crate) fn remove(&self, id: &RecordId, token: &ClaimToken, unfenced: Flaw) -> bool {
        self.change(id, token, unfenced, |data, _| {
            data.rows.remove(&place(id, self.flaw));
        })
    }

    /// Whether a completion may complete that row.
    pub(crate) fn completes(&self, row: &Row, claim: &Claim, pending: Option<&Pending>) -> bool {
        let mine = row.token == claim.token;
        match row.state {
            State::Claimed => {
                let unfenced = match (self.flaw, pending) {
                    (Flaw::CompletionUnfenced, Some(_)) | (Flaw::BareCompletionUnfenced, None) => {
                        true
                    }
                    (Flaw::FencedAtBegin, Some(pending)) => pending.fenced,
                    (Flaw::SlowOwnerRefused, _) if row.stale_at <= self.now() => return false,
                    _ => false,
                };
                mine || unfenced
            }
            State::Completed => match (self.flaw, pending) {
                (Flaw::CompletesTheCompleted, _) | (Flaw::BareCompletesTheCompleted, None) => mine,
                (Flaw::HeirOverwritten, _) => !mine,
                _ => false,
            },
            State::Tombstone => false,
        }
    }
}
