//! A connection of the pool's that does not go back in the middle of a statement.

use std::future::{Future as _, poll_fn};
use std::io;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

/// A connection of the pool's. It is closed instead of given back where a statement was dropped on
/// its way, by a time-out for instance, or ended in anything but the database's own word.
///
/// On MySQL sqlx 0.9 loses its place among the server's answers where a statement is dropped while
/// it is prepared: the next one then takes an earlier answer for its own, panics, or waits for ever,
/// in the pool's hands too.
pub(crate) struct Loan<DB: Database> {
    conn: PoolConnection<DB>,
    in_doubt: bool,
}

impl<DB: Database> Loan<DB> {
    pub(crate) async fn of(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            conn: pool.acquire().await?,
            in_doubt: false,
        })
    }

    /// Closes it instead of giving it back.
    pub(crate) fn distrust(&mut self) {
        self.in_doubt = true;
    }

    /// Runs a step on the connection. Nothing more is to be had of one that will be closed.
    pub(crate) async fn run<T>(
        &mut self,
        step: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        if self.in_doubt {
            return Err(sqlx::Error::Io(io::ErrorKind::NotConnected.into()));
        }
        self.in_doubt = true;
        let mut step = pin!(step(&mut self.conn));
        let ended = poll_fn(|context| {
            // Among answers that it does not expect, the driver may panic.
            catch_unwind(AssertUnwindSafe(|| step.as_mut().poll(context)))
                .unwrap_or(Poll::Ready(Err(sqlx::Error::WorkerCrashed)))
        });
        let ended = ended.await;
        self.in_doubt = !matches!(ended, Ok(_) | Err(sqlx::Error::Database(_)));
        ended
    }
}

impl<DB: Database> Drop for Loan<DB> {
    fn drop(&mut self) {
        if self.in_doubt {
            self.conn.close_on_drop();
        }
    }
}

impl<DB: Database> Deref for Loan<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.conn
    }
}

impl<DB: Database> DerefMut for Loan<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.conn
    }
}
