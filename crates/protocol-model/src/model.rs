//! What can happen next.

use stateright::Property;

use crate::action::{Action, Client, Cut, Server, Step};
use crate::limits::{ByHand, Limits};
use crate::mutant::Mutant;
use crate::promise::{Landmark, Promise};
use crate::state::{Arrival, Fate, Job, KEYS, Phase, Row, SLOTS, State, Statement, Then, Token};
use crate::symmetry::representative;

/// The protocol, as it is or with one mutation, within limits that make it finite.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// How much may happen.
    pub limits: Limits,
    /// The fence or check that is missing.
    pub mutant: Option<Mutant>,
    /// The one promise that is looked at; none for all of them.
    pub only: Option<Promise>,
}

impl Model {
    /// The protocol as it is.
    #[must_use]
    pub fn faithful(limits: Limits) -> Self {
        Self {
            limits,
            mutant: None,
            only: None,
        }
    }

    /// Whether it is that mutant.
    #[must_use]
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn tokens(&self) -> impl Iterator<Item = Token> + use<> {
        (0..self.limits.arrivals).map(Token)
    }

    fn arrives(&self, state: &State, actions: &mut Vec<Action>) {
        let running = state.arrivals.iter().filter(|a| a.is_running()).count();
        if running >= self.limits.running {
            return;
        }
        // In order: who comes first is the first.
        let absent = |token: &Token| state.arrival(*token).phase == Phase::Absent;
        if let Some(token) = self.tokens().find(absent) {
            actions.push(Action::Arrive(token, Job::Publish));
            if self.limits.removals {
                actions.push(Action::Arrive(token, Job::Remove));
            }
        }
    }

    fn proceeds(&self, me: Token, arrival: &Arrival, actions: &mut Vec<Action>) {
        let by_hand = self.limits.by_hand != ByHand::Never && arrival.job == Job::Publish;
        let steps: &[Step] = match arrival.phase {
            Phase::Absent | Phase::Over(_) => return,
            Phase::Claiming { .. } => &[Step::Claim],
            Phase::Replacing { .. } => &[Step::Replace],
            Phase::Running if self.limits.renewals => {
                &[Step::Renew, Step::Begin, Step::Complete, Step::Fail]
            }
            Phase::Running => &[Step::Begin, Step::Complete, Step::Fail],
            Phase::Begun if by_hand => &[Step::Complete, Step::Fail, Step::EndByHand],
            Phase::Begun | Phase::ByHand => &[Step::Complete, Step::Fail],
            Phase::Committing => &[Step::Commit, Step::Fail],
            Phase::Resolving => &[Step::Resolve],
            Phase::Reading => &[Step::Read],
            Phase::Freeing(_) => &[Step::Free],
            Phase::Unmatched | Phase::LookingUp => &[Step::LookUp],
            Phase::Marking => &[Step::Mark],
        };
        actions.extend(steps.iter().map(|&step| Action::Go(me, step)));
        actions.push(Action::Die(me));
    }

    /// What a broken connection can do to the step that comes next. Left out is what ends as some
    /// other action does.
    fn breaks(&self, me: Token, state: &State, actions: &mut Vec<Action>) {
        use Client::{GivesUp, Retries, TimesOut};
        use Server::{NotRun, Ran, RunsLater};
        let cuts: &[(Step, Server, Client)] = match state.arrival(me).phase {
            Phase::Claiming { again: false } => &[
                (Step::Claim, Ran, Retries),
                (Step::Claim, Ran, GivesUp),
                (Step::Claim, RunsLater, Retries),
                (Step::Claim, RunsLater, GivesUp),
            ],
            Phase::Claiming { again: true } => &[
                (Step::Claim, Ran, GivesUp),
                (Step::Claim, RunsLater, GivesUp),
            ],
            Phase::Replacing { .. } => &[
                (Step::Replace, Ran, GivesUp),
                (Step::Replace, RunsLater, GivesUp),
            ],
            Phase::Running => &[
                (Step::Renew, RunsLater, Retries),
                (Step::Complete, NotRun, TimesOut),
                (Step::Complete, Ran, TimesOut),
                (Step::Complete, RunsLater, TimesOut),
            ],
            Phase::Begun => &[
                (Step::Complete, NotRun, GivesUp),
                (Step::Complete, NotRun, TimesOut),
                (Step::Complete, Ran, GivesUp),
                (Step::Complete, Ran, TimesOut),
            ],
            Phase::ByHand => &[
                (Step::Complete, NotRun, GivesUp),
                (Step::Complete, NotRun, TimesOut),
            ],
            Phase::Committing => &[(Step::Commit, RunsLater, TimesOut)],
            Phase::Resolving => &[
                (Step::Resolve, Ran, Retries),
                (Step::Resolve, RunsLater, Retries),
            ],
            Phase::Freeing(_) => &[(Step::Free, RunsLater, GivesUp)],
            Phase::Unmatched => &[
                (Step::LookUp, NotRun, GivesUp),
                (Step::LookUp, NotRun, TimesOut),
            ],
            Phase::Marking => &[
                (Step::Mark, RunsLater, Retries),
                (Step::Mark, RunsLater, GivesUp),
            ],
            Phase::Absent | Phase::Reading | Phase::LookingUp | Phase::Over(_) => &[],
        };
        let cuts = cuts
            .iter()
            .filter(|(step, ..)| *step != Step::Renew || self.limits.renewals);
        actions.extend(cuts.map(|&(step, server, client)| {
            let cut = Cut {
                step,
                server,
                client,
            };
            Action::Cut(me, cut)
        }));
    }

    fn time_passes(&self, state: &State, actions: &mut Vec<Action>) {
        for key in 0..KEYS {
            let due = match state.rows[key] {
                Row::Claimed { stale, .. } => !stale,
                Row::Completed {
                    result,
                    stale,
                    expired,
                    ..
                } => !expired && self.expires(result) || !stale && self.follows_stale_at(),
                Row::Absent | Row::Tombstone => false,
            };
            if due {
                actions.push(Action::TimePasses(key));
            }
            if state.doomed.is_none() && self.find_doomed(state, key).is_some() {
                actions.push(Action::PurgeFinds(key));
            }
            if state.erasures > 0 && state.rows[key] != Row::Absent && !state.is_locked(key) {
                actions.push(Action::Erase(key));
            }
        }
        if state.doomed.is_some() {
            actions.push(Action::PurgeDeletes);
        }
    }

    /// A claim becomes stale, a result expires; for mutants' sake one after the other.
    fn age(&self, row: &mut Row) {
        match row {
            Row::Claimed { stale, .. } => *stale = true,
            Row::Completed {
                result,
                stale,
                expired,
                ..
            } => {
                if self.follows_stale_at() && !*stale {
                    *stale = true;
                } else if self.expires(*result) {
                    *expired = true;
                }
            }
            Row::Absent | Row::Tombstone => {}
        }
    }

    fn expires(&self, result: crate::state::Replay) -> bool {
        result != crate::state::Replay::Unknown || self.is(Mutant::UnknownExpires)
    }
}

impl stateright::Model for Model {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            cuts: self.limits.cuts,
            erasures: self.limits.erasures,
            ..State::default()
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.arrives(state, actions);
        for me in self.tokens() {
            let arrival = state.arrival(me);
            self.proceeds(me, arrival, actions);
            if state.cuts > 0 {
                self.breaks(me, state, actions);
            }
            if arrival.late.is_some() {
                actions.push(Action::Late(me));
            }
            if arrival.tx.fate == Fate::InDoubt {
                actions.push(Action::Land(me));
            }
            if matches!(arrival.tx.fate, Fate::InDoubt | Fate::Abandoned) {
                actions.push(Action::RollBack(me));
            }
        }
        self.time_passes(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Arrive(me, job) => {
                let arrival = state.arrival_mut(me);
                arrival.job = job;
                arrival.phase = Phase::Claiming { again: false };
            }
            Action::Go(me, step) => self.go(&mut state, me, step)?,
            Action::Cut(me, cut) => self.cut(&mut state, me, cut)?,
            Action::Die(me) => Self::die(&mut state, me),
            Action::Late(me) => self.run_late(&mut state, me)?,
            Action::Land(me) => self.commit(&mut state, me),
            Action::RollBack(me) => state.arrival_mut(me).tx = crate::state::Tx::default(),
            Action::TimePasses(key) => self.age(&mut state.rows[key]),
            Action::PurgeFinds(key) => state.doomed = self.find_doomed(&state, key),
            Action::PurgeDeletes => {
                let doomed = state.doomed?;
                self.delete_doomed(&mut state, doomed);
            }
            Action::Erase(key) => {
                state.erasures -= 1;
                Self::erase(&mut state, key);
            }
        }
        self.settle(&mut state);
        Some(if self.limits.symmetry {
            representative(&state)
        } else {
            state
        })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = Promise::properties();
        if let Some(only) = self.only {
            properties.retain(|property| property.name == only.name());
        } else if self.mutant.is_none() {
            properties.extend(Landmark::properties(&self.limits));
        }
        properties
    }
}

impl Model {
    /// Drops what makes no difference any more.
    fn settle(&self, state: &mut State) {
        for index in 0..SLOTS {
            let me = Token(u8::try_from(index).unwrap_or(u8::MAX));
            let held = state.row(me).is_claimed_by(me);
            let arrival = state.arrival_mut(me);
            // No statement but a claim can find a row that is not there: all name its token.
            let in_vain = !held && self.mutant.is_none() && names_token(arrival.late);
            if in_vain {
                arrival.late = None;
            }
            arrival.settle();
        }
    }
}

fn names_token(late: Option<Statement>) -> bool {
    matches!(
        late,
        Some(Statement::Renew | Statement::Free | Statement::Mark | Statement::Complete)
    )
}

impl Phase {
    /// Whether the client is told, or has been, that there is no effect.
    #[must_use]
    pub fn denies(self) -> bool {
        use crate::state::Told;
        matches!(self, Self::Freeing(Then::Deny) | Self::Over(Told::NoEffect))
    }
}
