//! The figures, one file for each kind.

pub(crate) mod against;
pub(crate) mod growth;
pub(crate) mod in_memory;
pub(crate) mod matrix;
pub(crate) mod profile;
pub(crate) mod purge;
pub(crate) mod round_trips;
pub(crate) mod size;
pub(crate) mod waiting;

use std::time::Duration;

use crate::report::Report;
use benches::database::PostgresEngine;
use benches::pairs::Turns;

/// What all figures have.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) quick: bool,
    pub(crate) postgres: PostgresEngine,
    pub(crate) report: Report,
}

impl Bench {
    pub(crate) fn turns(&self) -> Turns {
        if self.quick {
            Turns {
                rounds: 20,
                slice: Duration::from_millis(200),
            }
        } else {
            Turns {
                rounds: 40,
                slice: Duration::from_millis(500),
            }
        }
    }
}
