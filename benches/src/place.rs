//! Everybody side by side, in one place: cases, clients, and sizes.

use std::fmt;
use std::time::Duration;

use axum::Router;
use sqlx::Pool;

use crate::cell::{Cell, ROUNDS};
use crate::database::BenchDb;
use crate::load::{Case, Load, Served, Way};
use crate::pairs::{Rates, Turns};
use crate::post::draft;
use crate::subject::{Subject, keep_replies};

/// A database and the way to it, and who is measured there.
#[derive(Debug)]
pub struct Place<DB: BenchDb> {
    /// As it is called in the table.
    pub title: &'static str,
    /// The applications' pool.
    pub pool: Pool<DB>,
    /// How long each turn is.
    pub slice: Duration,
    /// Whether requests come over HTTP, or are calls of the service.
    pub over_http: bool,
    /// How long the requests' bodies are.
    pub sizes: &'static [usize],
    /// Other crates' applications.
    pub peers: Vec<Peer>,
}

/// Another crate's application.
pub struct Peer {
    /// As it is called in the table.
    pub title: &'static str,
    /// The bare handler behind it, anew for each cell.
    pub app: Box<dyn Fn() -> Router + Send + Sync>,
    /// Whether clients log in first.
    pub has_sessions: bool,
    /// Whether it answers 409 to a key that is in progress.
    pub refuses: bool,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

impl<DB: BenchDb> Place<DB> {
    /// A place whose applications are called, with bodies of 1 KiB and of 256 KiB.
    #[must_use]
    pub fn new(title: &'static str, pool: Pool<DB>) -> Self {
        Self {
            title,
            pool,
            slice: Duration::from_millis(40),
            over_http: false,
            sizes: &[1024, 256 * 1024],
            peers: Vec::new(),
        }
    }

    /// Measures all cells, and prints each: beside the bare handler, and how many in a second. Closes
    /// the pool.
    pub async fn measure(self, cells: &mut Vec<Cell>) {
        for &bytes in self.sizes {
            for case in [Case::NewKey, Case::Replay, Case::InProgress] {
                for clients in [1, 16, 64] {
                    self.cell(case, clients, bytes, cells).await;
                }
            }
        }
        self.pool.close().await;
    }

    async fn cell(&self, case: Case, clients: usize, bytes: usize, cells: &mut Vec<Cell>) {
        let mut servers = Vec::new();
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
            let way = self.way(app, &mut servers).await;
            let mut load = Load::new(way, case, clients, draft(bytes));
            if reads {
                keep_replies(&self.pool, &load.keys(), &draft(bytes)).await;
            }
            load.prepare().await;
            loads.push((subject.title(), load));
        }
        for peer in &self.peers {
            if case == Case::InProgress && !peer.refuses {
                continue;
            }
            let way = self.way((peer.app)(), &mut servers).await;
            let mut load = Load::new(way, case, clients, draft(bytes));
            if peer.has_sessions {
                load = load.with_sessions();
            }
            load.prepare().await;
            loads.push((peer.title, load));
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
            println!("{cell}");
            cells.push(cell);
        }
    }

    async fn way(&self, app: Router, servers: &mut Vec<Served>) -> Way {
        if !self.over_http {
            return Way::Call(app);
        }
        let server = Served::start(app).await;
        let way = Way::Http(server.address);
        servers.push(server);
        way
    }
}
