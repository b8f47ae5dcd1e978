//! Everybody side by side: cases, clients, databases and sizes, as far as each can have them.

use std::time::Duration;

use axum::Router;
use sqlx::{MySql, Pool, Postgres, Sqlite};
use test_support::{Proxy, Traffic, sqlite_database};

use super::{Bench, CONNECTIONS};
use crate::database::{BenchDb, MariadbEngine};
use crate::load::{Case, Load, Way};
use crate::pairs::{Rates, Turns};
use crate::post::draft;
use crate::stats::Estimate;
use crate::subject::{Subject, keep_replies, peer_around};

/// One subject in one cell.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) database: String,
    pub(crate) case: Case,
    pub(crate) clients: usize,
    pub(crate) bytes: usize,
    pub(crate) subject: String,
    /// Beside the bare handler in the same rounds.
    pub(crate) ratio: Estimate,
    /// Requests in a second.
    pub(crate) rate: Estimate,
}

impl Cell {
    pub(crate) const CSV_HEAD: &str =
        "database,case,clients,bytes,subject,ratio to bare,low,high,requests/s,low,high\n";

    pub(crate) fn csv(&self) -> String {
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
    pub(crate) fn read(csv: &str) -> Vec<Self> {
        csv.lines().skip(1).filter_map(Self::parse).collect()
    }
}

const ROUNDS: usize = 20;

/// A way to a database, and what is measured there.
struct Place<DB: BenchDb> {
    title: &'static str,
    pool: Pool<DB>,
    slice: Duration,
    /// Other crates' applications.
    peers: Vec<(&'static str, Router)>,
}

impl<DB: BenchDb> Place<DB> {
    async fn measure(self, cells: &mut Vec<Cell>) {
        for bytes in [1024, 256 * 1024] {
            for case in [Case::NewKey, Case::Replay, Case::InProgress] {
                for clients in [1, 16, 64] {
                    self.cell(case, clients, bytes, cells).await;
                }
            }
        }
        self.pool.close().await;
    }

    async fn cell(&self, case: Case, clients: usize, bytes: usize, cells: &mut Vec<Cell>) {
        let mut loads = Vec::new();
        let bare = match case {
            Case::NewKey => Subject::Bare,
            // What only reads is held against a read.
            Case::Replay | Case::InProgress => Subject::Read,
        };
        for subject in [bare, Subject::ByHand, Subject::Ours, Subject::Relaxed] {
            let Some(app) = subject.app(&self.pool) else {
                continue;
            };
            let reads = subject == Subject::Read;
            let case = if reads { Case::Replay } else { case };
            let mut load = Load::new(Way::Call(app), case, clients, draft(bytes));
            match reads {
                true => keep_replies(&self.pool, load.keys(), &draft(bytes)).await,
                false => load.prepare().await,
            }
            loads.push((subject.title(), load));
        }
        for (title, app) in &self.peers {
            // They run a key that is in progress once more.
            if case != Case::InProgress {
                let mut load = Load::new(Way::Call(app.clone()), case, clients, draft(bytes));
                load.log_in().await;
                load.prepare().await;
                loads.push((title, load));
            }
        }
        let turns = Turns {
            rounds: ROUNDS,
            slice: self.slice,
        };
        let all: Vec<&Load> = loads.iter().map(|(_, load)| load).collect();
        let rates = Rates::measure(&all, turns).await;
        for (index, (subject, _)) in loads.iter().enumerate() {
            let cell = Cell {
                database: self.title.into(),
                case,
                clients,
                bytes,
                subject: (*subject).into(),
                ratio: rates.ratio(index, 0),
                rate: rates.rate(index),
            };
            print!("{}", cell.csv());
            cells.push(cell);
        }
    }
}

/// Measures all cells.
pub(crate) async fn measure(bench: &Bench) -> Vec<Cell> {
    let mut cells = Vec::new();
    let slice = Duration::from_millis(40);
    let options = bench.postgres.create().await;
    let pool = bench.postgres.pool(options, CONNECTIONS).await;
    let place = Place {
        title: "PostgreSQL",
        peers: peers(&pool),
        pool,
        slice,
    };
    place.measure(&mut cells).await;

    let proxy = Proxy::start(bench.postgres.server().address()).await;
    let options = bench.postgres.create().await;
    let options = bench.postgres.via(&options, proxy.address());
    let pool = bench.postgres.pool(options, CONNECTIONS).await;
    proxy.set_both(Traffic::Delay(Duration::from_millis(1)));
    let place = Place {
        title: "PostgreSQL, 1 ms away",
        pool,
        slice: 2 * slice,
        peers: Vec::new(),
    };
    place.measure(&mut cells).await;

    let file = sqlite_database();
    let place = Place {
        title: Sqlite::TITLE,
        pool: Sqlite::database(&file, CONNECTIONS).await,
        slice,
        peers: Vec::new(),
    };
    place.measure(&mut cells).await;

    let engine = MariadbEngine::start();
    let place = Place {
        title: MySql::TITLE,
        pool: MySql::database(&engine, CONNECTIONS).await,
        slice,
        peers: Vec::new(),
    };
    place.measure(&mut cells).await;
    cells
}

/// `axum-idempotent` around the bare handler.
fn peers(pool: &Pool<Postgres>) -> Vec<(&'static str, Router)> {
    let bare = Subject::Bare.app(pool);
    bare.map(|bare| ("axum-idempotent in memory", peer_around(bare)))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Case, Cell, Estimate};

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
        let read = Cell::read(&csv);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].csv(), cell.csv());
    }
}
