//! Figures beside their goals.

use std::fmt;

use benches::stats::Estimate;

/// What a figure is held against.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Where it is meant to get to; a miss is no failure.
    Aim(f64),
    /// Stated, without a goal.
    Stated,
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Figure {
    name: String,
    unit: &'static str,
    estimate: Estimate,
    goal: Goal,
}

impl Figure {
    pub(crate) fn new(
        name: impl Into<String>,
        unit: &'static str,
        estimate: Estimate,
        goal: Goal,
    ) -> Self {
        Self {
            name: name.into(),
            unit,
            estimate,
            goal,
        }
    }

    /// Whether the whole interval is on the wrong side of the goal.
    pub(crate) fn falls_short(&self) -> bool {
        match self.goal {
            Goal::AtLeast(least) => self.estimate.high < least,
            Goal::AtMost(most) => self.estimate.low > most,
            Goal::Aim(_) | Goal::Stated => false,
        }
    }

    fn csv(&self) -> String {
        let Estimate {
            median,
            low,
            high,
            samples,
        } = self.estimate;
        format!(
            "\"{}\",{},{median},{low},{high},{samples},{},{}\n",
            self.name,
            self.unit,
            self.goal,
            self.verdict()
        )
    }

    fn verdict(&self) -> &'static str {
        match self.goal {
            Goal::AtLeast(_) | Goal::AtMost(_) if self.falls_short() => "SHORT",
            Goal::AtLeast(_) | Goal::AtMost(_) => "reached",
            Goal::Aim(_) => "recorded",
            Goal::Stated => "stated",
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least}"),
            Self::AtMost(most) => write!(f, "<= {most}"),
            Self::Aim(aim) => write!(f, "aim {aim}"),
            Self::Stated => Ok(()),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate {
            median,
            low,
            high,
            samples,
        } = self.estimate;
        let interval = if samples > 1 {
            format!("[{}, {}]", short(low), short(high))
        } else {
            String::new()
        };
        write!(
            f,
            "{:<63} {:>7} {:<5} {:<16} {:<8} {}",
            self.name,
            short(median),
            self.unit,
            interval,
            self.goal.to_string(),
            self.verdict()
        )
    }
}

/// The table, which grows as it is measured.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: Vec<Figure>,
}

impl Report {
    /// Adds a line, and prints it.
    pub(crate) fn add(&mut self, figure: Figure) {
        println!("{figure}");
        self.figures.push(figure);
    }

    /// The lines that fall short.
    pub(crate) fn short(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.falls_short())
    }

    pub(crate) fn csv(&self) -> String {
        let head = "figure,unit,median,low,high,samples,goal,verdict\n".to_owned();
        self.figures
            .iter()
            .fold(head, |csv, figure| csv + &figure.csv())
    }
}

/// With as many digits as tell something.
fn short(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.3}"),
        middle if middle < 1_000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, Goal};
    use benches::stats::Estimate;

    /// A figure falls short only where its whole interval does, and a recorded one never.
    #[test]
    fn a_goal_is_missed_by_the_whole_interval() {
        let short = |goal| {
            let estimate = Estimate::of(&[0.8, 0.9, 1.0, 0.9, 0.8]);
            Figure::new("ratio", "", estimate, goal).falls_short()
        };
        assert!(!short(Goal::AtLeast(0.95)));
        assert!(short(Goal::AtLeast(1.05)));
        assert!(!short(Goal::AtMost(0.85)));
        assert!(short(Goal::AtMost(0.75)));
        assert!(!short(Goal::Aim(2.0)));
    }
}
