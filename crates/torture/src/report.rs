//! What was done and what was found, as a table.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::time::Duration;

use crate::faults::Counts;
use crate::history::{History, KINDS, Kind, Violation};
use crate::round::Round;

/// The sum of some rounds.
#[derive(Default)]
pub(crate) struct Report {
    keys: usize,
    requests: usize,
    answers: HashMap<&'static str, u64>,
    faults: Counts,
    kills_at_points: u64,
    events: Vec<(&'static str, u64)>,
    violations: Vec<Violation>,
    evidence: BTreeMap<String, Vec<String>>,
    longest_wait: Duration,
    longest_pause: Duration,
    lost: Option<usize>,
    longest_in_calm: Duration,
    took: Duration,
}

/// How each kind of violation is called in the table.
const VIOLATIONS: [(&str, Kind); 9] = [
    ("duplicates", Kind::Duplicate),
    ("losses", Kind::Loss),
    ("differing", Kind::Differing),
    ("stuck", Kind::Stuck),
    ("2xx for another body", Kind::OtherBody),
    ("untrue answers", Kind::Untrue),
    ("effects apart from records", Kind::Apart),
    ("left claimed", Kind::LeftClaimed),
    ("idle in transaction", Kind::IdleInTransaction),
];

/// How many of the keys at which the promise is broken are shown.
const SHOWN: usize = 10;

impl Report {
    pub(crate) fn add(&mut self, round: Round) {
        self.keys += round.keys;
        self.requests += round.history.calls.len();
        for (kind, count) in round.answers {
            *self.answers.entry(kind).or_default() += count;
        }
        for (fault, count) in round.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        self.kills_at_points += round.kills_at_points;
        for (name, count) in round.events {
            match self.events.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sum)) => *sum += count,
                None => self.events.push((name, count)),
            }
        }
        self.violations.extend(round.violations);
        self.evidence.extend(round.evidence);
        let (longest, in_calm) = longest_waits(&round.history);
        self.longest_wait = self.longest_wait.max(longest);
        self.longest_in_calm = self.longest_in_calm.max(in_calm);
        self.longest_pause = self.longest_pause.max(round.longest_pause);
        self.lost = round
            .lost
            .map(|lost| lost + self.lost.unwrap_or_default())
            .or(self.lost);
        self.took += round.took;
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    pub(crate) fn print(&self) {
        println!();
        row("keys", self.keys);
        row("requests", self.requests);
        for kind in KINDS.into_iter().chain(["others"]) {
            let count = self.answers.get(kind).copied().unwrap_or_default();
            row(&format!("  {kind}"), count);
        }
        row(
            "faults",
            self.faults.values().sum::<u64>() + self.kills_at_points,
        );
        row("  SIGKILL at a named point", self.kills_at_points);
        for (fault, count) in &self.faults {
            row(&format!("  {fault}"), count);
        }
        for (event, count) in &self.events {
            row(event, count);
        }
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        row(
            "longest wait for a final answer",
            seconds(self.longest_wait),
        );
        row("  after the faults", seconds(self.longest_in_calm));
        row("longest pause of all 2xx", seconds(self.longest_pause));
        if let Some(lost) = self.lost {
            row("acknowledged, lost with the primary", lost);
        }
        for (name, kind) in VIOLATIONS {
            let of_kind = |violation: &&Violation| violation.kind == kind;
            row(name, self.violations.iter().filter(of_kind).count());
        }
        row("took", seconds(self.took));
        println!();
        for (key, evidence) in self.evidence.iter().take(SHOWN) {
            println!("{key}");
            for violation in self.violations.iter().filter(|v| v.key == *key) {
                println!("  {:?}: {}", violation.kind, violation.what);
            }
            for line in evidence {
                println!("    {line}");
            }
        }
        if let Some(more) = self.evidence.len().checked_sub(SHOWN + 1) {
            println!("and {} more", more + 1);
        }
    }
}

fn row(what: &str, count: impl Display) {
    let count = count.to_string();
    println!("{what:<36}{count:>10}");
}

/// The longest wait for a final answer, and what of any was after the last fault.
fn longest_waits(history: &History) -> (Duration, Duration) {
    let mut longest = (Duration::ZERO, Duration::ZERO);
    for wait in &history.waits {
        let Some(ended) = wait.ended else { continue };
        let in_calm = wait.began.max(history.faults_ended);
        longest.0 = longest.0.max(ended.saturating_sub(wait.began));
        longest.1 = longest.1.max(ended.saturating_sub(in_calm));
    }
    longest
}
