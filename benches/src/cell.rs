//! One subject in one place, case, number of clients, and size.

use std::fmt;

use crate::load::Case;
use crate::stats::Estimate;

/// How many rounds a cell is measured in.
pub const ROUNDS: usize = 20;

/// What was measured of one subject.
#[derive(Debug)]
pub struct Cell {
    /// The database, and the way to it.
    pub database: String,
    /// What the requests met.
    pub case: Case,
    /// How many clients sent them.
    pub clients: usize,
    /// How long a request's body was.
    pub bytes: usize,
    /// Who answered.
    pub subject: String,
    /// Beside the bare handler in the same rounds; beside a bare read, for what only reads.
    pub ratio: Estimate,
    /// Requests in a second.
    pub rate: Estimate,
}

impl Cell {
    /// The names of the columns, as a line.
    pub const CSV_HEAD: &str = "database,case,clients,bytes,subject,ratio,ratio low,ratio high,\
        requests/s,requests/s low,requests/s high\n";

    /// As a line.
    #[must_use]
    pub fn csv(&self) -> String {
        let Estimate {
            median, low, high, ..
        } = self.ratio;
        format!(
            "\"{}\",{},{},{},{},{median:.3},{low:.3},{high:.3},{:.0},{:.0},{:.0}\n",
            self.database,
            self.case.title(),
            self.clients,
            self.bytes,
            self.subject,
            self.rate.median,
            self.rate.low,
            self.rate.high,
        )
    }

    /// Reads a line that [`csv`](Self::csv) made.
    fn parse(line: &str) -> Option<Self> {
        let (database, rest) = line.strip_prefix('"')?.split_once("\",")?;
        let fields: Vec<&str> = rest.split(',').collect();
        let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
        let estimate = |first| {
            Some(Estimate {
                median: number(first)?,
                low: number(first + 1)?,
                high: number(first + 2)?,
                samples: ROUNDS,
            })
        };
        let cases = [Case::NewKey, Case::Replay, Case::InProgress];
        Some(Self {
            database: database.into(),
            case: cases.into_iter().find(|case| case.title() == fields[0])?,
            clients: fields.get(1)?.parse().ok()?,
            bytes: fields.get(2)?.parse().ok()?,
            subject: (*fields.get(3)?).into(),
            ratio: estimate(4)?,
            rate: estimate(7)?,
        })
    }

    /// Reads what an earlier run has written.
    ///
    /// # Errors
    ///
    /// A line is no cell: what was measured is not lost in silence.
    pub fn read(csv: &str) -> Result<Vec<Self>, String> {
        let lines = csv.lines().enumerate().skip(1);
        lines
            .map(|(number, line)| {
                Self::parse(line).ok_or_else(|| format!("line {} is no cell: {line}", number + 1))
            })
            .collect()
    }
}

/// As a line of a table.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate {
            median, low, high, ..
        } = self.ratio;
        write!(
            f,
            "{:<21} {:<11} {:>2} x {:>3} KiB  {:<29} {median:>6.2} {:<15} {:>7.0}/s",
            self.database,
            self.case.title(),
            self.clients,
            self.bytes / 1024,
            self.subject,
            format!("[{low:.2}, {high:.2}]"),
            self.rate.median,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Cell;
    use crate::load::Case;
    use crate::stats::Estimate;

    /// What is written can be read, commas in names included.
    #[test]
    fn a_cell_is_read_as_it_was_written() {
        let cell = Cell {
            database: "PostgreSQL, 1 ms away".into(),
            case: Case::InProgress,
            clients: 16,
            bytes: 1024,
            subject: "ours".into(),
            ratio: Estimate::counted(0.5),
            rate: Estimate::counted(1234.0),
        };
        let csv = Cell::CSV_HEAD.to_owned() + &cell.csv();
        let read = Cell::read(&csv).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].csv(), cell.csv());
        let error = Cell::read(&(csv + "more")).unwrap_err();
        assert_eq!(error, "line 3 is no cell: more");
    }
}
