//! What must hold at every instant, and what must have been seen for that to mean something.

use stateright::Property;

use crate::action::Step;
use crate::limits::{ByHand, Limits};
use crate::model::Model;
use crate::state::{Arrival, Effect, Fate, Job, KEYS, Phase, Replay, Row, State, Token, Told};

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// One key never has two committed effects, counted since its record was last forgotten as it
    /// may be: by ttl, by a purge after that, or by an operator who erases it.
    OneEffect,
    /// Effect committed <=> completed record committed.
    Together,
    /// A client that reads 2xx reads the result of an effect that is committed.
    TrueSuccess,
    /// A client that is told that nothing was done is told the truth, and it stays true.
    TrueDenial,
    /// Who is told that its claim is renewed holds it.
    TrueRenewal,
    /// The post's record is buried <=> its removal is committed.
    Buried,
    /// Where nobody runs, whoever arrives next gets a final answer, once time has passed.
    NotStuck,
}

impl Promise {
    /// How it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OneEffect => "one effect",
            Self::Together => "effect <=> record",
            Self::TrueSuccess => "2xx is true",
            Self::TrueDenial => "denial is true",
            Self::TrueRenewal => "renewal is true",
            Self::Buried => "buried <=> removed",
            Self::NotStuck => "not stuck",
        }
    }

    pub(crate) fn properties() -> Vec<Property<Model>> {
        macro_rules! always {
            ($($promise:ident)*) => {
                vec![$(Property::always(Self::$promise.name(), |model, state| {
                    Self::$promise.holds(model, state)
                })),*]
            };
        }
        always!(OneEffect Together TrueSuccess TrueDenial TrueRenewal Buried NotStuck)
    }

    /// Whether the state keeps it.
    #[must_use]
    pub fn holds(self, model: &Model, state: &State) -> bool {
        let told = |told| {
            let over = Phase::Over(told);
            state.arrivals.iter().any(|arrival| arrival.phase == over)
        };
        match self {
            Self::OneEffect => (0..KEYS).all(|key| effects(state, key) <= 1),
            Self::Together => (0..KEYS).all(|key| record_of_effect(state, key)),
            Self::TrueSuccess => !told(Told::FalseSuccess),
            Self::TrueDenial => state
                .arrivals
                .iter()
                .all(|arrival| !arrival.phase.denies() || !counts(arrival)),
            Self::TrueRenewal => !told(Told::FalseRenewal),
            Self::Buried => {
                let buried = state.rows[Job::Publish.key()] == Row::Tombstone;
                buried == state.removed
            }
            Self::NotStuck => (0..KEYS).all(|key| is_answered(model, state, key)),
        }
    }
}

fn counts(arrival: &Arrival) -> bool {
    matches!(arrival.effect, Effect::Standing | Effect::ByHand)
}

fn effects(state: &State, key: usize) -> usize {
    let of_key = state.arrivals.iter().filter(|a| a.job.key() == key);
    of_key.filter(|arrival| counts(arrival)).count()
}

fn record_of_effect(state: &State, key: usize) -> bool {
    let row = state.rows[key];
    let recorded = (0..).map(Token).zip(&state.arrivals).all(|(me, arrival)| {
        arrival.job.key() != key
            || match arrival.effect {
                Effect::None | Effect::Past => true,
                Effect::Standing => match row {
                    Row::Completed { result, .. } => {
                        matches!(result, Replay::Unknown) || result == Replay::Of(me)
                    }
                    Row::Tombstone => true,
                    Row::Absent | Row::Claimed { .. } => false,
                },
                // On its way to be marked.
                Effect::ByHand => row.is_claimed_by(me) && may_mark(arrival.phase),
            }
    });
    let caused = match row {
        Row::Completed {
            result: Replay::Of(token),
            ..
        } => state.arrival(token).effect == Effect::Standing,
        Row::Absent | Row::Claimed { .. } | Row::Completed { .. } | Row::Tombstone => true,
    };
    recorded && caused
}

fn may_mark(phase: Phase) -> bool {
    matches!(phase, Phase::ByHand | Phase::Unmatched | Phase::Marking)
}

/// Lets one more arrival run where nothing else does, with nothing that fails.
fn is_answered(model: &Model, state: &State, key: usize) -> bool {
    if !state.arrivals.iter().all(|arrival| arrival.is_at_rest()) {
        return true;
    }
    let probe = Token(model.limits.arrivals);
    let mut state = *state;
    if let Row::Claimed { stale, .. } = &mut state.rows[key] {
        *stale = true;
    }
    let arrival = state.arrival_mut(probe);
    arrival.phase = Phase::Claiming { again: false };
    arrival.job = if key == Job::Publish.key() {
        Job::Publish
    } else {
        Job::Remove
    };
    // Claim, look again, replace, complete, and one to spare.
    for _ in 0..5 {
        let step = match state.arrival(probe).phase {
            Phase::Replacing { .. } => Step::Replace,
            Phase::Running => Step::Complete,
            Phase::Over(_) => break,
            _ => Step::Claim,
        };
        if model.go(&mut state, probe, step).is_none() {
            return false;
        }
    }
    let over = matches!(state.arrival(probe).phase, Phase::Over(_));
    // Told to come back where nobody runs: no final answer.
    over && !matches!(state.rows[key], Row::Claimed { .. })
}

/// What must be reached, lest the promises be kept for want of trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landmark {
    /// A claim was taken over while its owner's handler was at it.
    OwnerTakenOver,
    /// A COMMIT in doubt outlived its process and the staleness of its claim.
    DoubtOutlivesProcess,
    /// A statement was run after its arrival was over.
    LateStatement,
    /// A COMMIT in doubt is about to be read for a proof that is there.
    ProofToRead,
    /// A result has expired.
    Expired,
    /// The post's record is buried.
    Buried,
    /// A record bears an unknown outcome.
    Unknown,
}

impl Landmark {
    /// How it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OwnerTakenOver => "an owner at work is taken over",
            Self::DoubtOutlivesProcess => "a commit in doubt outlives its process",
            Self::LateStatement => "a statement is still to run when its arrival is over",
            Self::ProofToRead => "a commit in doubt has left its proof",
            Self::Expired => "a result expires",
            Self::Buried => "a record is buried",
            Self::Unknown => "an outcome is unknown",
        }
    }

    const ALL: [Self; 7] = [
        Self::OwnerTakenOver,
        Self::DoubtOutlivesProcess,
        Self::LateStatement,
        Self::ProofToRead,
        Self::Expired,
        Self::Buried,
        Self::Unknown,
    ];

    /// Those that can be reached within the limits.
    pub(crate) fn within(limits: &Limits) -> impl Iterator<Item = &'static str> {
        let within = |landmark: &Self| landmark.is_within(limits);
        Self::ALL.into_iter().filter(within).map(Self::name)
    }

    pub(crate) fn properties(limits: &Limits) -> Vec<Property<Model>> {
        macro_rules! sometimes {
            ($($landmark:ident)*) => {
                [$((Self::$landmark, Property::sometimes(Self::$landmark.name(), |_: &Model, state: &State| {
                    Self::$landmark.is_at(state)
                }))),*]
            };
        }
        let all = sometimes!(OwnerTakenOver DoubtOutlivesProcess LateStatement ProofToRead Expired Buried Unknown);
        let within = all
            .into_iter()
            .filter(|(landmark, _)| landmark.is_within(limits));
        within.map(|(_, property)| property).collect()
    }

    fn is_within(self, limits: &Limits) -> bool {
        match self {
            Self::Buried => limits.removals,
            Self::Unknown => limits.by_hand != ByHand::Never,
            Self::LateStatement | Self::ProofToRead => limits.cuts > 0,
            Self::OwnerTakenOver | Self::DoubtOutlivesProcess | Self::Expired => true,
        }
    }

    fn is_at(self, state: &State) -> bool {
        let arrivals = || (0..).map(Token).zip(&state.arrivals);
        let post = state.rows[Job::Publish.key()];
        match self {
            Self::OwnerTakenOver => arrivals().any(|(me, arrival)| {
                arrival.phase == Phase::Begun
                    && matches!(state.row(me), Row::Claimed { token, .. } if token != me)
            }),
            Self::DoubtOutlivesProcess => arrivals().any(|(me, arrival)| {
                arrival.tx.fate == Fate::InDoubt
                    && matches!(arrival.phase, Phase::Over(_))
                    && matches!(state.row(me), Row::Claimed { stale: true, .. })
            }),
            Self::LateStatement => {
                arrivals().any(|(_, arrival)| arrival.late.is_some() && !arrival.is_running())
            }
            Self::ProofToRead => arrivals().any(|(me, arrival)| {
                arrival.phase == Phase::Reading
                    && matches!(state.row(me), Row::Completed { token, .. } if token == Some(me))
            }),
            Self::Expired => matches!(post, Row::Completed { expired: true, .. }),
            Self::Buried => post == Row::Tombstone,
            Self::Unknown => matches!(
                post,
                Row::Completed {
                    result: Replay::Unknown,
                    ..
                }
            ),
        }
    }
}
