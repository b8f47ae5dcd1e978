//! Loads that take turns, so that what else the machine does meets all of them alike.

use std::time::Duration;

use crate::load::Load;
use crate::stats::Estimate;

/// How often, and for how long at a time, each load runs.
#[derive(Debug, Clone, Copy)]
pub struct Turns {
    /// How often.
    pub rounds: usize,
    /// How long.
    pub slice: Duration,
}

/// The rates of each load, round by round.
#[derive(Debug)]
pub struct Rates(Vec<Vec<f64>>);

impl Rates {
    /// Runs all loads once in each round; who is first changes from round to round.
    pub async fn measure(loads: &[&Load], turns: Turns) -> Self {
        let mut rates = vec![Vec::with_capacity(turns.rounds); loads.len()];
        for load in loads {
            load.run(turns.slice).await;
        }
        for round in 0..turns.rounds {
            for turn in 0..loads.len() {
                let index = match round % 2 {
                    0 => turn,
                    _ => loads.len() - 1 - turn,
                };
                rates[index].push(loads[index].run(turns.slice).await);
            }
        }
        Self(rates)
    }

    /// How one load compares with another in the same round.
    #[must_use]
    pub fn ratio(&self, of: usize, to: usize) -> Estimate {
        let ratios: Vec<f64> = self.0[of]
            .iter()
            .zip(&self.0[to])
            .map(|(of, to)| of / to)
            .collect();
        Estimate::of(&ratios)
    }

    /// How many requests of a load were answered in a second.
    #[must_use]
    pub fn rate(&self, of: usize) -> Estimate {
        Estimate::of(&self.0[of])
    }
}
