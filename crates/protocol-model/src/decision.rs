//! The decisions that are not modelled but called: what a record means is asked of the core.

use std::sync::LazyLock;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Method, StatusCode};
use tower_idempotency_core::{
    Claim, ClaimOutcome, ClaimToken, Decision, Fingerprint, IdempotencyKey, Operation, Owner,
    Record, RecordId, RecordState, Resolution, StoredResponse,
};

use crate::model::Model;
use crate::mutant::Mutant;
use crate::state::{Replay, Row, SLOTS, Token};

/// What a row means for an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Replay(Replay),
    InProgress,
    Gone,
    Replace { seen: Option<Token> },
}

/// What a row says of a commit in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    Committed,
    Other(Verdict),
    Absent,
}

static NAMES: [u8; SLOTS] = [0, 1, 2, 3, 4];

/// One request, with the tokens of its arrivals. All of them bear the same fingerprint: another
/// one is answered 409 and changes nothing, or replaces as the same one would.
static CLAIMS: LazyLock<[Claim; SLOTS]> = LazyLock::new(|| {
    let key = IdempotencyKey::from_text("key").expect("a valid key");
    let id = RecordId {
        owner: Owner::shared(),
        operation: Operation::from_static("operation"),
        key,
    };
    let fingerprint = Fingerprint::builder(&Method::POST).path("/").finish();
    let claim = Claim::new(id, fingerprint);
    NAMES.map(|name| Claim {
        token: claim_token(Token(name)),
        ..claim.clone()
    })
});

fn claim_token(token: Token) -> ClaimToken {
    ClaimToken::from_bytes([token.0; 16])
}

/// The token that a mutant's completion has dropped: that of no claim.
fn dropped() -> ClaimToken {
    ClaimToken::from_bytes([u8::MAX; 16])
}

fn token_of(token: ClaimToken) -> Option<Token> {
    let name = token.as_bytes()[0];
    NAMES.contains(&name).then_some(Token(name))
}

/// The body of a response is the name of the arrival whose handler made it.
fn response(result: Replay) -> StoredResponse {
    match result {
        Replay::Of(token) => {
            let body = Bytes::from_static(&NAMES[token.index()..=token.index()]);
            StoredResponse::kept(StatusCode::CREATED, Bytes::new(), body)
        }
        Replay::Unknown => StoredResponse::outcome_unknown(),
    }
}

fn result(response: &StoredResponse) -> Replay {
    match &response.content {
        Some(content) => Replay::Of(Token(content.body[0])),
        None => Replay::Unknown,
    }
}

impl Model {
    fn record(&self, row: Row) -> Option<Record> {
        let fingerprint = CLAIMS[0].fingerprint.clone();
        let state = match row {
            Row::Absent => return None,
            Row::Claimed { token, stale } => RecordState::Claimed {
                token: claim_token(token),
                fingerprint,
                stale: stale && !self.is(Mutant::NeverStale),
            },
            Row::Completed {
                token,
                result,
                stale,
                expired,
            } => RecordState::Completed {
                token: token.map_or_else(dropped, claim_token),
                fingerprint,
                response: response(result),
                expired: expired || stale && self.is(Mutant::StalenessWithoutState),
            },
            Row::Tombstone => RecordState::Tombstone,
        };
        Some(Record {
            state,
            claimed_at: SystemTime::UNIX_EPOCH,
            resource_ref: None,
        })
    }

    /// [`Record::decide`], asked of the core. None where there is no record.
    pub(crate) fn decide(&self, row: Row) -> Option<Verdict> {
        if row == Row::Tombstone && self.is(Mutant::TombstoneReplaceable) {
            return Some(Verdict::Replace { seen: None });
        }
        self.record(row).map(|record| verdict(&record))
    }

    /// [`Resolution::of`], asked of the core.
    pub(crate) fn resolution(&self, me: Token, row: Row) -> Doubt {
        match Resolution::of(&CLAIMS[me.index()], self.record(row)) {
            Resolution::Committed(_) => Doubt::Committed,
            Resolution::Other(record) => Doubt::Other(verdict(&record)),
            // It never says that it freed: it only reads.
            Resolution::Absent | Resolution::Freed => Doubt::Absent,
        }
    }
}

fn verdict(record: &Record) -> Verdict {
    match record.decide(&CLAIMS[0].fingerprint) {
        Decision::Replace { seen, .. } => Verdict::Replace {
            seen: token_of(seen),
        },
        Decision::Answer(ClaimOutcome::Completed(response)) => Verdict::Replay(result(&response)),
        Decision::Answer(ClaimOutcome::Tombstone) => Verdict::Gone,
        // The core never decides so: only a store acquires, and there is one fingerprint.
        Decision::Answer(
            ClaimOutcome::InProgress | ClaimOutcome::Mismatch | ClaimOutcome::Acquired { .. },
        ) => Verdict::InProgress,
    }
}
