//! What an arrival does next, and what it makes of the database's reply. Follows `work.rs` and
//! `finish.rs` of the core, and the store of the sqlx crate.

use crate::action::Step;
use crate::database::Reply;
use crate::decision::{Doubt, Verdict};
use crate::model::Model;
use crate::mutant::Mutant;
use crate::state::{
    Arrival, Effect, Fate, Job, Phase, Replay, Row, State, Statement, Then, Token, Told, Tx,
};

impl Model {
    /// Makes a step. None where it is not possible now.
    pub(crate) fn go(&self, state: &mut State, me: Token, step: Step) -> Option<()> {
        let phase = match (state.arrival(me).phase, step) {
            (Phase::Claiming { .. }, Step::Claim) => self.claim(state, me),
            (Phase::Replacing { seen }, Step::Replace) => {
                match self.run(state, me, Statement::Replace { seen }) {
                    Reply::Matched => Phase::Running,
                    _ => Phase::Claiming { again: true },
                }
            }
            (Phase::Running, Step::Renew) => self.renew(state, me)?,
            (Phase::Running, Step::Begin) => self.begin(state, me)?,
            (Phase::Running, Step::Complete) => match self.run(state, me, Statement::Complete) {
                Reply::Blocked => return None,
                Reply::Matched => Self::success(state, me),
                Reply::Unmatched | Reply::Found(_) => Phase::LookingUp,
            },
            (Phase::Begun, Step::Complete) => self.complete_within(state, me)?,
            (Phase::Begun, Step::EndByHand) => Self::end_by_hand(state, me),
            (Phase::ByHand, Step::Complete) => Phase::Unmatched,
            (Phase::ByHand, Step::Fail) => self.not_ours(),
            (Phase::Committing, Step::Commit) => self.commit_and_answer(state, me),
            (Phase::Running | Phase::Begun | Phase::Committing, Step::Fail) => {
                state.arrival_mut(me).tx = Tx::default();
                Phase::Freeing(Then::Deny)
            }
            (Phase::Resolving, Step::Resolve) => self.resolve(state, me)?,
            (Phase::Reading, Step::Read) => self.read(state, me),
            (Phase::Freeing(then), Step::Free) => match self.run(state, me, Statement::Free) {
                Reply::Blocked => return None,
                _ => after_freeing(then),
            },
            (Phase::Unmatched, Step::LookUp) => self.unmatched(state, me),
            (Phase::LookingUp, Step::LookUp) => Self::others_say(state, self.decide(state.row(me))),
            (Phase::Marking, Step::Mark) => match self.run(state, me, Statement::Mark) {
                Reply::Blocked => return None,
                _ => Phase::Over(Told::Truth),
            },
            _ => return None,
        };
        state.arrival_mut(me).phase = phase;
        Some(())
    }

    fn claim(&self, state: &mut State, me: Token) -> Phase {
        let Reply::Found(row) = self.run(state, me, Statement::Claim) else {
            return Phase::Running;
        };
        // Its own, made by a statement whose answer was lost.
        if row.is_claimed_by(me) {
            return Phase::Running;
        }
        match self.decide(row) {
            Some(Verdict::Replace { seen }) => Phase::Replacing { seen },
            Some(Verdict::Replay(Replay::Of(token))) => Self::success(state, token),
            Some(Verdict::Replay(Replay::Unknown) | Verdict::InProgress | Verdict::Gone) | None => {
                Phase::Over(Told::Truth)
            }
        }
    }

    fn renew(&self, state: &mut State, me: Token) -> Option<Phase> {
        let mine = state.row(me).is_claimed_by(me);
        Some(match self.run(state, me, Statement::Renew) {
            Reply::Blocked => return None,
            Reply::Matched if mine => Phase::Running,
            Reply::Matched => Phase::Over(Told::FalseRenewal),
            Reply::Unmatched | Reply::Found(_) => Phase::Freeing(Then::LookUp),
        })
    }

    /// Begins and writes. A removal finds the post, and buries its record in the same transaction;
    /// where there is none it fails.
    fn begin(&self, state: &mut State, me: Token) -> Option<Phase> {
        let buries = state.arrival(me).job == Job::Remove;
        let post = Job::Publish.key();
        if buries {
            let there = matches!(state.rows[post], Row::Completed { .. });
            if !there || state.is_locked(post) {
                return None;
            }
        }
        if buries && self.is(Mutant::TombstoneApart) {
            state.rows[post] = Row::Tombstone;
        }
        state.arrival_mut(me).tx = Tx {
            fate: Fate::Open,
            completed: false,
            buries,
        };
        Some(Phase::Begun)
    }

    /// Completes within the handler's transaction.
    fn complete_within(&self, state: &mut State, me: Token) -> Option<Phase> {
        if self.is(Mutant::CompletionApart) {
            self.commit(state, me);
            return Some(Phase::Running);
        }
        let row = state.row(me);
        if self.holds(row, me, Statement::Complete) {
            if state.is_locked(state.arrival(me).job.key()) {
                return None;
            }
            state.arrival_mut(me).tx.completed = true;
            return Some(Phase::Committing);
        }
        if self.is(Mutant::CommitWithoutMatch) {
            return Some(Phase::Committing);
        }
        state.arrival_mut(me).tx = Tx::default();
        Some(Phase::Unmatched)
    }

    fn end_by_hand(state: &mut State, me: Token) -> Phase {
        let mine = state.row(me).is_claimed_by(me);
        let arrival = state.arrival_mut(me);
        arrival.tx = Tx::default();
        // Taken over before: the documented exception.
        arrival.effect = if mine { Effect::ByHand } else { Effect::Past };
        Phase::ByHand
    }

    fn commit_and_answer(&self, state: &mut State, me: Token) -> Phase {
        if self.is(Mutant::AnswerBeforeCommit) {
            return Self::success(state, me);
        }
        self.commit(state, me);
        Self::success(state, me)
    }

    /// The row is this claim's, the transaction was not.
    pub(crate) fn not_ours(&self) -> Phase {
        if self.is(Mutant::FreeAfterNotOurs) {
            Phase::Freeing(Then::Answer)
        } else {
            Phase::Marking
        }
    }

    /// Reads whose record it is.
    fn unmatched(&self, state: &State, me: Token) -> Phase {
        if state.row(me).is_claimed_by(me) && !self.is(Mutant::UnmatchedIsLost) {
            self.not_ours()
        } else {
            Phase::LookingUp
        }
    }

    /// Frees, fenced, which waits for a transaction in doubt.
    fn resolve(&self, state: &mut State, me: Token) -> Option<Phase> {
        if self.is(Mutant::AnswerWithoutProof) {
            return Some(Self::success(state, me));
        }
        if self.is(Mutant::ResolveReadsOnly) {
            return Some(Phase::Reading);
        }
        Some(match self.run(state, me, Statement::Free) {
            Reply::Blocked => return None,
            Reply::Matched => Phase::Over(Told::NoEffect),
            Reply::Unmatched | Reply::Found(_) => Phase::Reading,
        })
    }

    /// Reads, where there was nothing to free.
    fn read(&self, state: &State, me: Token) -> Phase {
        let row = state.row(me);
        if self.is(Mutant::ResolveReadsOnly) && row.is_claimed_by(me) {
            return Phase::Over(Told::NoEffect);
        }
        match self.resolution(me, row) {
            Doubt::Committed => Self::success(state, me),
            Doubt::Absent if self.is(Mutant::AbsentIsProof) => Self::success(state, me),
            Doubt::Absent => Phase::Over(Told::Truth),
            Doubt::Other(verdict) => Self::others_say(state, Some(verdict)),
        }
    }

    /// Answers with somebody else's record.
    fn others_say(state: &State, verdict: Option<Verdict>) -> Phase {
        match verdict {
            Some(Verdict::Replay(Replay::Of(token))) => Self::success(state, token),
            Some(
                Verdict::Replay(Replay::Unknown)
                | Verdict::InProgress
                | Verdict::Gone
                | Verdict::Replace { .. },
            )
            | None => Phase::Over(Told::Truth),
        }
    }

    /// 2xx, with what that arrival's handler answered.
    fn success(state: &State, of: Token) -> Phase {
        let committed = state.arrival(of).effect != Effect::None;
        Phase::Over(if committed {
            Told::Truth
        } else {
            Told::FalseSuccess
        })
    }
}

pub(crate) fn after_freeing(then: Then) -> Phase {
    match then {
        Then::Answer => Phase::Over(Told::Truth),
        Then::Deny => Phase::Over(Told::NoEffect),
        Then::LookUp => Phase::LookingUp,
    }
}

impl Arrival {
    /// Drops what makes no difference any more.
    pub(crate) fn settle(&mut self) {
        if !matches!(self.phase, Phase::Over(_)) || !self.is_at_rest() {
            return;
        }
        if self.effect == Effect::Past {
            self.effect = Effect::None;
        }
        if self.effect == Effect::None {
            self.job = Job::default();
            if self.phase == Phase::Over(Told::NoEffect) {
                self.phase = Phase::Over(Told::Truth);
            }
        }
    }
}
