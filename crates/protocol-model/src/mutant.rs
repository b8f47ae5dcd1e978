//! The fences and checks, dropped one at a time: the only table of them.

use crate::limits::{ByHand, Limits};
use crate::promise::Promise;

/// A model with one fence or check less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table below says what each is")]
pub enum Mutant {
    CompletionUnfenced,
    CompletionWithoutToken,
    CompletionWithoutState,
    CommitWithoutMatch,
    CompletionApart,
    AnswerBeforeCommit,
    TokenDropped,
    FreeWithoutToken,
    FreeWithoutState,
    TakeOverWithoutState,
    TakeOverWithoutToken,
    TakeOverWithoutStaleness,
    TakeOverWithoutExpiry,
    StalenessWithoutState,
    NeverStale,
    TombstoneReplaceable,
    TombstoneApart,
    PurgeWithoutRecheck,
    PurgeOfLiveClaims,
    PurgeOfTombstones,
    RenewalWithoutToken,
    MarkWithoutToken,
    UnknownExpires,
    AbsentIsProof,
    ResolveReadsOnly,
    AnswerWithoutProof,
    FreeAfterNotOurs,
    UnmatchedIsLost,
    FailedLookupIsLost,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The mutant.
    pub mutant: Mutant,
    /// What it does.
    pub what: &'static str,
    /// The promise that it breaks; none where another fence makes up for it.
    pub breaks: Option<Promise>,
    /// What is needed to see it.
    pub limits: Limits,
}

/// Two arrivals of one key, one broken connection.
const TWO: Limits = Limits {
    arrivals: 2,
    running: 2,
    cuts: 1,
    erasures: 0,
    by_hand: ByHand::Never,
    removals: false,
    renewals: true,
    symmetry: false,
};
const THREE: Limits = Limits {
    arrivals: 3,
    running: 3,
    ..TWO
};
const BY_HAND: Limits = Limits {
    by_hand: ByHand::Excused,
    ..TWO
};
const REMOVAL: Limits = Limits {
    removals: true,
    ..THREE
};
/// For what is not caught: as much as is visited in seconds, and every state of it.
const ALL: Limits = Limits {
    erasures: 1,
    symmetry: true,
    by_hand: ByHand::Excused,
    ..THREE
};

const fn line(mutant: Mutant, breaks: Option<Promise>, limits: Limits, what: &'static str) -> Line {
    Line {
        mutant,
        what,
        breaks,
        limits,
    }
}

/// Every mutant, and what must become of it.
pub const TABLE: &[Line] = {
    use Mutant as M;
    use Promise as P;
    &[
        line(
            M::CompletionUnfenced,
            Some(P::OneEffect),
            TWO,
            "completes whatever the row's token and state",
        ),
        line(
            M::CompletionWithoutToken,
            Some(P::TrueSuccess),
            TWO,
            "completes whoever's claim it is",
        ),
        line(
            M::CompletionWithoutState,
            None,
            ALL,
            "completes whatever the row's state, with the own token",
        ),
        line(
            M::CommitWithoutMatch,
            Some(P::Together),
            TWO,
            "commits though completion matched nothing",
        ),
        line(
            M::CompletionApart,
            Some(P::Together),
            TWO,
            "commits the effect first, then completes by itself",
        ),
        line(
            M::AnswerBeforeCommit,
            Some(P::TrueSuccess),
            TWO,
            "answers 2xx before COMMIT",
        ),
        line(
            M::TokenDropped,
            Some(P::NotStuck),
            TWO,
            "completion clears the token",
        ),
        line(
            M::FreeWithoutToken,
            Some(P::Together),
            BY_HAND,
            "frees whoever's claim it is",
        ),
        line(
            M::FreeWithoutState,
            Some(P::Together),
            TWO,
            "frees whatever the row's state",
        ),
        line(
            M::TakeOverWithoutState,
            Some(P::Together),
            TWO,
            "takes over where token and stale_at match",
        ),
        line(
            M::TakeOverWithoutToken,
            None,
            ALL,
            "takes over whatever is stale or expired by now",
        ),
        line(
            M::TakeOverWithoutStaleness,
            Some(P::Together),
            BY_HAND,
            "takes over a claim that was renewed meanwhile",
        ),
        line(
            M::TakeOverWithoutExpiry,
            Some(P::Together),
            TWO,
            "takes over a result that came meanwhile and is not expired",
        ),
        line(
            M::StalenessWithoutState,
            Some(P::Together),
            TWO,
            "calls a completed record stale",
        ),
        line(M::NeverStale, Some(P::NotStuck), TWO, "never takes over"),
        line(
            M::TombstoneReplaceable,
            Some(P::Together),
            REMOVAL,
            "replaces a tombstone",
        ),
        line(
            M::TombstoneApart,
            Some(P::Buried),
            REMOVAL,
            "buries outside of the removing transaction",
        ),
        line(
            M::PurgeWithoutRecheck,
            Some(P::Together),
            TWO,
            "purges what it found, whatever it is by now",
        ),
        line(
            M::PurgeOfLiveClaims,
            Some(P::Together),
            BY_HAND,
            "purges claims that are not stale",
        ),
        line(
            M::PurgeOfTombstones,
            Some(P::Together),
            REMOVAL,
            "purges tombstones",
        ),
        line(
            M::RenewalWithoutToken,
            Some(P::TrueRenewal),
            TWO,
            "renews whoever's claim it is",
        ),
        line(
            M::MarkWithoutToken,
            Some(P::TrueSuccess),
            BY_HAND,
            "marks whoever's claim it is as unknown",
        ),
        line(
            M::UnknownExpires,
            Some(P::Together),
            BY_HAND,
            "lets a record of unknown outcome expire",
        ),
        line(
            M::AbsentIsProof,
            Some(P::TrueSuccess),
            TWO,
            "takes an absent record for a commit",
        ),
        line(
            M::ResolveReadsOnly,
            Some(P::TrueDenial),
            TWO,
            "resolves without waiting for the transaction in doubt",
        ),
        line(
            M::AnswerWithoutProof,
            Some(P::TrueSuccess),
            TWO,
            "answers 2xx though COMMIT is in doubt",
        ),
        line(
            M::FreeAfterNotOurs,
            Some(P::Together),
            BY_HAND,
            "frees where the transaction was not ours",
        ),
        line(
            M::UnmatchedIsLost,
            Some(P::Together),
            BY_HAND,
            "takes an unmatched completion for a lost claim",
        ),
        line(
            M::FailedLookupIsLost,
            Some(P::Together),
            BY_HAND,
            "takes a failed lookup for a lost claim",
        ),
    ]
};
