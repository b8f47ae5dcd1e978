//! The steps of a run, with their times.

use std::fmt;
use std::time::Duration;

/// What has been done so far.
#[derive(Default)]
pub(crate) struct Table(Vec<Row>);

struct Row {
    step: &'static str,
    time: Duration,
    outcome: &'static str,
}

impl Table {
    pub(crate) fn push(&mut self, step: &'static str, time: Duration, outcome: &'static str) {
        self.0.push(Row {
            step,
            time,
            outcome,
        });
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.iter().map(|row| row.time).sum();
        for row in &self.0 {
            line(f, row.step, row.time, row.outcome)?;
        }
        line(f, "total", total, "")
    }
}

fn line(f: &mut fmt::Formatter<'_>, step: &str, time: Duration, outcome: &str) -> fmt::Result {
    let line = format!("{step:<12} {:>7.1} s  {outcome}", time.as_secs_f32());
    writeln!(f, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Table;

    /// Steps stand in order, and the total is their sum.
    #[test]
    fn times_are_summed() {
        let mut table = Table::default();
        table.push("format", Duration::from_millis(1_240), "ok");
        table.push("test", Duration::from_secs(100), "failed");
        assert_eq!(
            table.to_string(),
            "format           1.2 s  ok\n\
             test           100.0 s  failed\n\
             total          101.2 s\n"
        );
    }
}
