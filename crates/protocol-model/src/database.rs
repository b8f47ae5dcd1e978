//! What the statements do to the committed rows, each at one instant.

use crate::model::Model;
use crate::mutant::Mutant;
use crate::state::{Doomed, Effect, Fate, Job, Replay, Row, State, Statement, Token, Tx};

/// How a statement went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It waits for somebody else's transaction.
    Blocked,
    /// One row.
    Matched,
    /// No row.
    Unmatched,
    /// The row that a claim met.
    Found(Row),
}

impl Model {
    /// Runs a statement that is committed by itself.
    pub(crate) fn run(&self, state: &mut State, me: Token, statement: Statement) -> Reply {
        match statement {
            Statement::Claim => match state.row(me) {
                Row::Absent => {
                    *state.row_mut(me) = claimed(me);
                    Reply::Matched
                }
                row => Reply::Found(row),
            },
            Statement::Replace { seen } => self.replace(state, me, seen),
            Statement::Renew => self.change_held(state, me, statement, |_, row| match row {
                Row::Claimed { token, .. } => Row::Claimed {
                    token,
                    stale: false,
                },
                row => row,
            }),
            Statement::Free => self.change_held(state, me, statement, |_, _| Row::Absent),
            Statement::Mark => self.change_held(state, me, statement, |state, row| {
                let arrival = state.arrival_mut(me);
                if arrival.effect == Effect::ByHand {
                    arrival.effect = Effect::Standing;
                }
                self.completed(row, Replay::Unknown)
            }),
            Statement::Complete => self.change_held(state, me, statement, |state, row| {
                state.arrival_mut(me).effect = Effect::Standing;
                self.completed(row, Replay::Of(me))
            }),
        }
    }

    /// Changes the row where the statement's fence lets it.
    fn change_held(
        &self,
        state: &mut State,
        me: Token,
        statement: Statement,
        change: impl FnOnce(&mut State, Row) -> Row,
    ) -> Reply {
        let row = state.row(me);
        if !self.holds(row, me, statement) {
            return Reply::Unmatched;
        }
        if state.is_locked(state.arrival(me).job.key()) {
            return Reply::Blocked;
        }
        *state.row_mut(me) = change(state, row);
        Reply::Matched
    }

    /// `claim_token = mine AND state = 'claimed'`.
    pub(crate) fn holds(&self, row: Row, me: Token, statement: Statement) -> bool {
        use Mutant as M;
        let (token_fenced, state_fenced) = match (statement, self.mutant) {
            (Statement::Complete, Some(M::CompletionUnfenced)) => (false, false),
            (Statement::Complete, Some(M::CompletionWithoutToken))
            | (Statement::Free, Some(M::FreeWithoutToken))
            | (Statement::Renew, Some(M::RenewalWithoutToken))
            | (Statement::Mark, Some(M::MarkWithoutToken)) => (false, true),
            (Statement::Complete, Some(M::CompletionWithoutState))
            | (Statement::Free, Some(M::FreeWithoutState)) => (true, false),
            _ => (true, true),
        };
        row != Row::Absent
            && (!token_fenced || row.token() == Some(me))
            && (!state_fenced || matches!(row, Row::Claimed { .. }))
    }

    /// The row after its completion. Completion leaves the token as it is.
    pub(crate) fn completed(&self, row: Row, result: Replay) -> Row {
        let was_stale = matches!(
            row,
            Row::Claimed { stale: true, .. } | Row::Completed { stale: true, .. }
        );
        Row::Completed {
            token: row.token().filter(|_| !self.is(Mutant::TokenDropped)),
            result,
            stale: was_stale && self.follows_stale_at(),
            expired: false,
        }
    }

    /// Whether anything reads `stale_at` of completed records.
    pub(crate) fn follows_stale_at(&self) -> bool {
        self.is(Mutant::TakeOverWithoutState) || self.is(Mutant::StalenessWithoutState)
    }

    fn replace(&self, state: &mut State, me: Token, seen: Option<Token>) -> Reply {
        let key = state.arrival(me).job.key();
        let row = state.rows[key];
        let (due, rightly) = match row {
            Row::Absent => (false, false),
            Row::Claimed { stale, .. } => {
                (stale || self.is(Mutant::TakeOverWithoutStaleness), stale)
            }
            Row::Completed { stale, expired, .. } => (
                expired
                    || stale && self.follows_stale_at()
                    || self.is(Mutant::TakeOverWithoutExpiry),
                expired,
            ),
            Row::Tombstone => (self.is(Mutant::TombstoneReplaceable), false),
        };
        let as_seen = self.is(Mutant::TakeOverWithoutToken)
            || row == Row::Tombstone
            || seen.is_some() && row.token() == seen;
        // A locked row is skipped.
        if !due || !as_seen || state.is_locked(key) {
            return Reply::Unmatched;
        }
        if rightly {
            self.end(state, key);
        }
        state.rows[key] = claimed(me);
        Reply::Matched
    }

    /// A row ends as it may: what it stood for no longer counts.
    fn end(&self, state: &mut State, key: usize) {
        match state.rows[key] {
            Row::Claimed { token, .. } => state.excuse(token),
            // For ever.
            Row::Completed {
                result: Replay::Unknown,
                ..
            } if self.is(Mutant::UnknownExpires) => {}
            Row::Absent | Row::Completed { .. } | Row::Tombstone => state.forget(key),
        }
    }

    /// The first half of a purge.
    pub(crate) fn find_doomed(&self, state: &State, key: usize) -> Option<Doomed> {
        match state.rows[key] {
            Row::Claimed { token, stale } if stale || self.is(Mutant::PurgeOfLiveClaims) => {
                let claim = Some(token);
                Some(Doomed { key, claim })
            }
            Row::Completed { expired: true, .. } => Some(Doomed { key, claim: None }),
            Row::Tombstone if self.is(Mutant::PurgeOfTombstones) => {
                Some(Doomed { key, claim: None })
            }
            Row::Absent | Row::Claimed { .. } | Row::Completed { .. } | Row::Tombstone => None,
        }
    }

    /// The second half: deletes what was found, if that is what is still there.
    pub(crate) fn delete_doomed(&self, state: &mut State, doomed: Doomed) {
        let Doomed { key, claim } = doomed;
        state.doomed = None;
        if state.is_locked(key) {
            return;
        }
        let rightly = match state.rows[key] {
            Row::Claimed { token, stale } => stale && claim == Some(token),
            Row::Completed { expired, .. } => expired && claim.is_none(),
            Row::Absent | Row::Tombstone => false,
        };
        let live = matches!(state.rows[key], Row::Claimed { token, .. } if claim == Some(token));
        let due = rightly
            || self.is(Mutant::PurgeWithoutRecheck)
            || self.is(Mutant::PurgeOfLiveClaims) && live
            || self.is(Mutant::PurgeOfTombstones) && state.rows[key] == Row::Tombstone;
        if rightly {
            self.end(state, key);
        }
        if due {
            state.rows[key] = Row::Absent;
        }
    }

    /// An operator erases the owner; one row at a time, which is more than the statement does.
    pub(crate) fn erase(state: &mut State, key: usize) {
        state.forget(key);
        state.rows[key] = Row::Absent;
    }

    /// Commits a transaction: effect, completion and burial in one.
    pub(crate) fn commit(&self, state: &mut State, me: Token) {
        let tx = std::mem::take(&mut state.arrival_mut(me).tx);
        state.arrival_mut(me).effect = Effect::Standing;
        if tx.completed {
            *state.row_mut(me) = self.completed(state.row(me), Replay::Of(me));
        }
        if tx.buries {
            state.removed = true;
            state.rows[Job::Publish.key()] = Row::Tombstone;
        }
    }

    /// The connection is gone: the database will roll back. Who locks nothing is rolled back at
    /// once, because nobody sees the difference.
    pub(crate) fn abandon(state: &mut State, me: Token) {
        let tx = &mut state.arrival_mut(me).tx;
        if tx.completed || tx.buries {
            tx.fate = Fate::Abandoned;
        } else {
            *tx = Tx::default();
        }
    }
}

pub(crate) fn claimed(token: Token) -> Row {
    Row::Claimed {
        token,
        stale: false,
    }
}
