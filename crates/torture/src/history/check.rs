//! What a history and the tables prove. A pure function: it asks nobody.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Answer, Call, Effect, History, Outcome, RecordRow, Request, Tables, Wait};

/// In which way the promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A key has more than one effect, or two clients were told that theirs was the first run.
    Duplicate,
    /// A 2xx names an effect that is not there.
    Loss,
    /// Two 2xx of one key differ.
    Differing,
    /// A client did not get a final answer in time, or was told that nobody knows.
    Stuck,
    /// A 2xx was given to a request other than the one that was run.
    OtherBody,
    /// An answer says what cannot be so, given what was answered before.
    Untrue,
    /// Effects and records do not agree.
    Apart,
    /// A record is claimed although nothing runs.
    LeftClaimed,
    /// A connection is idle in transaction although nothing runs.
    IdleInTransaction,
}

/// A key at which the promise is broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) kind: Kind,
    /// Empty where it is the tables as a whole.
    pub(crate) key: String,
    pub(crate) what: String,
}

/// Everything that concerns one key.
#[derive(Default)]
struct Story<'a> {
    calls: Vec<&'a Call>,
    /// Calls that remove what this key made.
    removals: Vec<&'a Call>,
    waits: Vec<&'a Wait>,
    /// What this key made, whether or not it was removed later.
    made: Vec<&'a Effect>,
    /// What this key removed.
    removed: Vec<&'a Effect>,
    records: Vec<&'a RecordRow>,
}

/// Proves a round, or says what is wrong with it.
pub(crate) fn check(history: &History, tables: &Tables) -> Vec<Violation> {
    let mut stories: BTreeMap<&str, Story<'_>> = BTreeMap::new();
    for call in &history.calls {
        stories.entry(&call.key).or_default().calls.push(call);
        if let Request::Remove { of, .. } = &call.request {
            stories.entry(of).or_default().removals.push(call);
        }
    }
    for wait in &history.waits {
        stories.entry(&wait.key).or_default().waits.push(wait);
    }
    for effect in &tables.effects {
        stories.entry(&effect.key).or_default().made.push(effect);
        if let Some(by) = &effect.buried_by {
            stories.entry(by).or_default().removed.push(effect);
        }
    }
    for record in &tables.records {
        stories.entry(&record.key).or_default().records.push(record);
    }

    let mut found = Vec::new();
    for (key, story) in &stories {
        let mut complain = |kind, what: String| {
            let key = (*key).to_owned();
            found.push(Violation { kind, key, what });
        };
        story.effects(&mut complain);
        story.answers(history, &mut complain);
        story.record(&mut complain);
        story.waits(history, &mut complain);
    }
    let mut complain = |kind, what| {
        let key = String::new();
        found.push(Violation { kind, key, what });
    };
    let effects = i64::try_from(tables.effects.len()).unwrap_or(i64::MAX);
    if tables.tally != effects {
        let what = format!("{effects} effects, but {} counted", tables.tally);
        complain(Kind::Apart, what);
    }
    if tables.idle > 0 {
        let what = format!("{} connections are idle in transaction", tables.idle);
        complain(Kind::IdleInTransaction, what);
    }
    found
}

impl Story<'_> {
    fn successes(&self) -> impl Iterator<Item = (&Call, &Answer)> {
        answered(&self.calls).filter(|(_, answer)| answer.is_success())
    }

    /// Whether the database may have forgotten all that was said of it.
    fn is_forgotten(&self) -> bool {
        let forgotten = |call: &&Call| matches!(call.outcome, Outcome::Forgotten);
        !self.calls.is_empty() && self.calls.iter().all(forgotten)
    }

    /// At most one effect, and each 2xx names one that is there, or was until it was removed.
    fn effects(&self, complain: &mut impl FnMut(Kind, String)) {
        let effects = if self.made.is_empty() {
            &self.removed
        } else {
            &self.made
        };
        if effects.len() > 1 {
            let what = format!("{} effects", effects.len());
            complain(Kind::Duplicate, what);
        }
        let mut firsts = 0;
        for (call, answer) in self.successes() {
            firsts += usize::from(!answer.replayed);
            let named = answer.names.as_deref();
            let Some(effect) = effects.iter().find(|e| Some(&*e.id) == named) else {
                complain(Kind::Loss, format!("not there: {call}"));
                continue;
            };
            if matches!(&call.request, Request::Make { body } if *body != effect.body) {
                let what = format!("the effect is of {:?}: {call}", effect.body);
                complain(Kind::OtherBody, what);
            }
        }
        if firsts > 1 {
            complain(Kind::Duplicate, format!("{firsts} answers without mark"));
        }
    }

    /// All 2xx are equal, and no answer denies what was known before its call.
    fn answers(&self, history: &History, complain: &mut impl FnMut(Kind, String)) {
        let mut successes = self.successes();
        let first = successes.next();
        if let Some((_, first)) = first {
            let differs = |a: &Answer| {
                (a.status, &a.headers, &a.body) != (first.status, &first.headers, &first.body)
            };
            for (call, _) in successes.filter(|(_, answer)| differs(answer)) {
                complain(Kind::Differing, format!("unlike another: {call}"));
            }
        }
        let known = self.successes().map(|(call, _)| call.ended).min();
        let run = first.map(|(call, _)| &call.request);
        let removing = self.removals.iter().map(|call| call.started).min();
        let removed = answered(&self.removals)
            .filter(|(_, answer)| answer.is_success())
            .map(|(call, _)| call.ended)
            .min();
        for (call, answer) in answered(&self.calls) {
            let after = |time: Option<Duration>| time.is_some_and(|time| call.started > time);
            let may_be = match answer.status {
                410 if answer.is_problem("gone") => removing.is_some_and(|t| t < call.ended),
                // Any other 410 is said to be stuck, below.
                503 | 410 => true,
                _ if after(removed) => false,
                200..300 => true,
                409 if answer.is_problem("key-reused") => {
                    let others = self.calls.iter().filter(|c| c.request != call.request);
                    let mut sent = others.filter(|other| other.started < call.ended);
                    sent.next().is_some() && !(after(known) && run == Some(&call.request))
                }
                409 | 422 | 500.. => !after(known),
                // Of a handler that was taken over, and found its effect made by the other; or there
                // is nothing to remove any more.
                404 => {
                    !after(known)
                        && (!self.removed.is_empty() || removes_what_is_gone(call, history))
                }
                _ => false,
            };
            if !may_be {
                complain(Kind::Untrue, format!("cannot be so: {call}"));
            }
            if answer.status == 410 && !answer.is_problem("gone") {
                complain(Kind::Stuck, format!("for ever: {call}"));
            }
        }
    }

    /// The effect is committed if and only if the completed record is.
    fn record(&self, complain: &mut impl FnMut(Kind, String)) {
        let states: Vec<&str> = self.records.iter().map(|record| &*record.state).collect();
        let agree = match (&self.made[..], &self.removed[..], &self.records[..]) {
            ([], [], []) => true,
            // The completion is lost with its effect, and nobody asks again for what was answered.
            ([], [], [record]) if record.state == "claimed" && self.is_forgotten() => true,
            (_, _, [record]) if record.state == "claimed" => {
                complain(Kind::LeftClaimed, "the record is claimed".to_owned());
                return;
            }
            ([effect], [], [record]) => {
                let state = match effect.buried_by {
                    None => "completed",
                    Some(_) => "tombstone",
                };
                record.state == state && record.resource_ref.as_ref() == Some(&effect.id)
            }
            ([], [_], [record]) => record.state == "completed",
            _ => false,
        };
        if !agree {
            let effects = self.made.len() + self.removed.len();
            complain(
                Kind::Apart,
                format!("{effects} effects, records {states:?}"),
            );
        }
    }

    fn waits(&self, history: &History, complain: &mut impl FnMut(Kind, String)) {
        for wait in &self.waits {
            let counts_from = wait.began.max(history.faults_ended);
            let what = match wait.ended {
                None => "no final answer".to_owned(),
                Some(ended) if ended.saturating_sub(counts_from) > history.bound => {
                    let late = ended.saturating_sub(counts_from).as_secs_f64();
                    format!("a final answer only after {late:.1} s")
                }
                Some(_) => continue,
            };
            complain(Kind::Stuck, what);
        }
    }
}

fn removes_what_is_gone(call: &Call, history: &History) -> bool {
    matches!(&call.request, Request::Remove { id, .. } if history.gone.contains(id))
}

fn answered<'a>(calls: &'a [&'a Call]) -> impl Iterator<Item = (&'a Call, &'a Answer)> {
    calls.iter().filter_map(|call| match &call.outcome {
        Outcome::Answer(answer) => Some((*call, answer)),
        Outcome::HungUp | Outcome::Broken | Outcome::Forgotten => None,
    })
}
