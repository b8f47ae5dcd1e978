//! Runs the model and its mutants, and says what was found.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use stateright::{Checker, HasDiscoveries, Model as _};

use crate::limits::Limits;
use crate::model::Model;
use crate::mutant::Line;
use crate::promise::{Landmark, Promise};

/// What an exhaustive run has found.
#[derive(Debug)]
pub struct Exploration {
    /// Within which limits.
    pub limits: Limits,
    /// How many states there are.
    pub states: usize,
    /// How many steps led to them.
    pub steps: usize,
    /// How long the longest of the shortest ways is.
    pub depth: usize,
    /// The promises that were broken.
    pub broken: BTreeSet<&'static str>,
    /// The landmarks that were not reached.
    pub missed: BTreeSet<&'static str>,
}

/// A way to a broken promise: what happened, one thing a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace(pub Vec<String>);

impl Model {
    /// Visits every state. Uses two threads.
    #[must_use]
    pub fn explore(self) -> Exploration {
        let landmarks: BTreeSet<_> = Landmark::within(&self.limits).collect();
        let checker = self.checker().threads(2);
        // A broken promise ends it; reached landmarks do not.
        let checker = checker.finish_when(HasDiscoveries::AnyFailures);
        let checker = checker.spawn_bfs().join();
        let found: BTreeSet<_> = checker.discoveries().into_keys().collect();
        Exploration {
            limits: self.limits,
            states: checker.unique_state_count(),
            steps: checker.state_count(),
            depth: checker.max_depth(),
            broken: found.difference(&landmarks).copied().collect(),
            missed: match self.mutant {
                None => landmarks.difference(&found).copied().collect(),
                Some(_) => BTreeSet::new(),
            },
        }
    }

    /// The shortest way to a broken promise, if there is one.
    #[must_use]
    pub fn counterexample(mut self, promise: Promise) -> Option<Trace> {
        // Who is who matters to a reader.
        self.limits.symmetry = false;
        // With another promise to look for, or another thread, it might not be the shortest.
        self.only = Some(promise);
        let checker = self.checker().threads(1).finish_when(HasDiscoveries::Any);
        let path = checker.spawn_bfs().join().discovery(promise.name())?;
        let actions = path.into_actions();
        Some(Trace(actions.iter().map(ToString::to_string).collect()))
    }
}

/// What became of a mutant.
#[derive(Debug)]
pub struct Verdict {
    /// The mutant.
    pub line: Line,
    /// The way to the promise that it breaks.
    pub caught: Option<Trace>,
    /// For one that is to survive: what visiting every state has found.
    pub survived: Option<Exploration>,
}

impl Line {
    /// Sets the mutant against the promises.
    #[must_use]
    pub fn judge(&self) -> Verdict {
        let model = Model {
            limits: self.limits,
            mutant: Some(self.mutant),
            only: None,
        };
        let (caught, survived) = match self.breaks {
            Some(promise) => (model.counterexample(promise), None),
            None => (None, Some(model.explore())),
        };
        Verdict {
            line: *self,
            caught,
            survived,
        }
    }
}

impl Verdict {
    /// Whether it is what the table says.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        match &self.survived {
            Some(exploration) => exploration.broken.is_empty(),
            None => self.caught.is_some(),
        }
    }
}

/// The table `mutant | caught by | steps`.
#[must_use]
pub fn table(verdicts: &[Verdict]) -> String {
    let mut table = String::from("| mutant | caught by | steps |\n|---|---|---|\n");
    for verdict in verdicts {
        let (by, steps) = match (&verdict.line.breaks, &verdict.caught) {
            (Some(promise), Some(trace)) => (promise.name(), trace.0.len().to_string()),
            (None, _) if verdict.is_as_expected() => ("nothing: another fence holds", "-".into()),
            (Some(_) | None, _) => ("NOT AS EXPECTED", "-".into()),
        };
        let what = verdict.line.what;
        let _ = writeln!(table, "| {what} | {by} | {steps} |");
    }
    table
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in (1..).zip(&self.0) {
            writeln!(f, "  {number:>2}. {step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Exploration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits {
            arrivals,
            running,
            cuts,
            erasures,
            by_hand,
            ..
        } = self.limits;
        write!(
            f,
            "{arrivals} arrivals, {running} at once, {cuts} cuts, {erasures} erasures, by hand: \
             {by_hand:?}: {} states, {} steps, depth {}; broken: {:?}; missed: {:?}",
            self.states, self.steps, self.depth, self.broken, self.missed
        )
    }
}
