//! What breaks: connections, in the middle of a step, and processes.

use crate::action::{Client, Cut, Server, Step};
use crate::arrival::after_freeing;
use crate::database::Reply;
use crate::limits::ByHand;
use crate::model::Model;
use crate::mutant::Mutant;
use crate::state::{Fate, Phase, State, Statement, Then, Token, Told};

impl Model {
    /// Makes a step whose answer does not come.
    pub(crate) fn cut(&self, state: &mut State, me: Token, cut: Cut) -> Option<()> {
        state.cuts -= 1;
        let Cut {
            step,
            server,
            client,
        } = cut;
        let phase = state.arrival(me).phase;
        match (phase, step) {
            (Phase::Begun, _) => {
                if server == Server::Ran {
                    // The same as if it had not run, where it matches nothing.
                    let row = state.row(me);
                    let locked = state.is_locked(state.arrival(me).job.key());
                    if !self.holds(row, me, Statement::Complete) || locked {
                        return None;
                    }
                    state.arrival_mut(me).tx.completed = true;
                }
                Self::abandon(state, me);
            }
            (Phase::Committing, _) => state.arrival_mut(me).tx.fate = Fate::InDoubt,
            (Phase::ByHand, _) => self.excuse_cut(state, me),
            (Phase::Unmatched, _) if client == Client::TimesOut => self.excuse_cut(state, me),
            _ => self.send(state, me, statement_of(phase, step), server)?,
        }
        let next = match (phase, client) {
            (Phase::Claiming { .. }, Client::Retries) => Phase::Claiming { again: true },
            (Phase::Claiming { .. } | Phase::Replacing { .. }, _)
            | (Phase::ByHand, Client::GivesUp) => Phase::Freeing(Then::Answer),
            (
                Phase::Running
                | Phase::Begun
                | Phase::Committing
                | Phase::ByHand
                | Phase::Unmatched,
                Client::TimesOut,
            ) => Phase::Resolving,
            (Phase::Begun, _) => Phase::Freeing(Then::Deny),
            (Phase::Unmatched, _) if self.is(Mutant::FailedLookupIsLost) => Phase::LookingUp,
            (Phase::Unmatched, _) => self.not_ours(),
            (Phase::Freeing(then), _) => after_freeing(then),
            (Phase::Marking, Client::GivesUp) => {
                state.excuse(me);
                Phase::Over(Told::Truth)
            }
            (phase, _) => phase,
        };
        state.arrival_mut(me).phase = next;
        Some(())
    }

    /// The layer does not learn that the transaction was ended by hand.
    fn excuse_cut(&self, state: &mut State, me: Token) {
        if self.limits.by_hand == ByHand::Excused {
            state.excuse(me);
        }
    }

    /// Sends a statement whose answer does not come. None where that is the same as another action.
    fn send(
        &self,
        state: &mut State,
        me: Token,
        statement: Option<Statement>,
        server: Server,
    ) -> Option<()> {
        let Some(statement) = statement else {
            return Some(());
        };
        match server {
            Server::NotRun => {}
            Server::Ran => {
                if self.run(state, me, statement) != Reply::Matched {
                    return None;
                }
            }
            Server::RunsLater => {
                let late = &mut state.arrival_mut(me).late;
                if late.is_some() {
                    return None;
                }
                *late = Some(statement);
            }
        }
        Some(())
    }

    /// Runs a statement that nobody waits for any more.
    pub(crate) fn run_late(&self, state: &mut State, me: Token) -> Option<()> {
        let statement = state.arrival(me).late?;
        if self.run(state, me, statement) == Reply::Blocked {
            return None;
        }
        state.arrival_mut(me).late = None;
        Some(())
    }

    /// The process dies. Of a COMMIT that was just being sent, nobody knows.
    pub(crate) fn die(state: &mut State, me: Token) {
        let phase = state.arrival(me).phase;
        match phase {
            Phase::Committing => state.arrival_mut(me).tx.fate = Fate::InDoubt,
            Phase::Begun => Self::abandon(state, me),
            _ => {}
        }
        state.excuse(me);
        let told = if phase.denies() {
            Told::NoEffect
        } else {
            Told::Truth
        };
        state.arrival_mut(me).phase = Phase::Over(told);
    }
}

/// The statement of a step outside of a transaction; none where it only reads.
fn statement_of(phase: Phase, step: Step) -> Option<Statement> {
    match (step, phase) {
        (Step::Claim, _) => Some(Statement::Claim),
        (Step::Replace, Phase::Replacing { seen }) => Some(Statement::Replace { seen }),
        (Step::Renew, _) => Some(Statement::Renew),
        (Step::Complete, _) => Some(Statement::Complete),
        (Step::Resolve | Step::Free, _) => Some(Statement::Free),
        (Step::Mark, _) => Some(Statement::Mark),
        _ => None,
    }
}
