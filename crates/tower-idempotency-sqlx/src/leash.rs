//! A transaction that never goes back to the pool half ended.
//!
//! sqlx 0.9 counts how deep a connection is in nested transactions, does not tell, and trusts its
//! count: where a nested transaction was forgotten, or ended by hand, its `commit()` releases a
//! savepoint and says that all is well, or fails and gives the connection back inside of the
//! transaction. So nothing here asks sqlx to commit or to roll back: the database is told literally,
//! and the count is unwound afterwards.

use std::fmt::Write as _;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::{Connection as _, Pool, SqlStr};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tower_idempotency_core::ClaimToken;

use crate::dialect::Dialect;
use crate::driver::Sending;
use crate::error::timed_out;
use crate::loan::Loan;
use crate::sent::composed;

/// A transaction of ours, and the proof that it still is.
pub(crate) struct Leash<DB: Dialect> {
    /// `None` only while it is being dropped.
    loan: Option<Loan<DB>>,
    token: String,
    savepoint: String,
    /// Whether there is a claim, with that token.
    claimed: bool,
    /// How statements are sent on it.
    pub(crate) sending: Sending,
    /// How often it was asked for a proof.
    asked: usize,
    /// Whether the connection has been taken out of all transactions already.
    unwound: bool,
    committed: bool,
}

/// Whether a transaction is still the one that was begun.
#[derive(Debug)]
pub(crate) enum Proof {
    /// It is.
    Ours,
    /// It was ended by somebody else.
    NotOurs,
    /// It was rolled back by the database itself, with all that was written in it.
    RolledBack,
    /// It could not be asked.
    Unasked(sqlx::Error),
}

/// The deepest nesting that is unwound.
const MAX_DEPTH: usize = 64;

/// How long a proof or a roll-back may take: past that the connection is closed, which the database
/// takes for a roll-back.
const PATIENCE: Duration = Duration::from_secs(5);

impl<DB: Dialect> Leash<DB> {
    /// Begins a transaction. To be run in a task that nothing cancels.
    pub(crate) async fn begin(
        pool: &Pool<DB>,
        sending: Sending,
        token: &ClaimToken,
        claimed: bool,
    ) -> Result<Self, sqlx::Error> {
        let token = hex(token);
        let savepoint = format!("tower_idempotency_{token}");
        let mut loan = Loan::of(pool).await?;
        let begin = composed(DB::begin(&token, &savepoint, claimed));
        // sqlx counts it, and is not to end it.
        let begun = loan.run(async |conn: &mut DB::Connection| {
            let transaction = conn.begin_with(begin).await?;
            let _ = ManuallyDrop::new(transaction);
            Ok(())
        });
        if let Err(error) = begun.await {
            if DB::UNDO.is_some() {
                // Some of it may be done.
                loan.distrust();
            }
            return Err(error);
        }
        Ok(Self {
            loan: Some(loan),
            token,
            savepoint,
            claimed,
            sending,
            asked: 0,
            unwound: false,
            committed: false,
        })
    }

    /// Runs a step on the connection.
    pub(crate) async fn run<T>(
        &mut self,
        step: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        self.loan().run(step).await
    }

    /// Proves that the transaction is ours and not aborted, and ends what was left nested in it.
    pub(crate) async fn prove(&mut self) -> Proof {
        self.ask(DB::proof(&self.token, &self.savepoint, self.claimed))
            .await
    }

    /// Proves that the transaction is ours though it may be aborted, and undoes what was written.
    pub(crate) async fn prove_and_undo(&mut self) -> Proof {
        let failed = self.step(async |conn: &mut DB::Connection| DB::has_failed(conn).await);
        let failed = failed.await.unwrap_or(false);
        let sql = format!("ROLLBACK TO SAVEPOINT {}", self.savepoint);
        match self.ask(sql).await {
            Proof::NotOurs if failed => {
                let token = self.token.clone();
                let asking =
                    async |conn: &mut DB::Connection| DB::was_committed(conn, &token).await;
                match self.step(asking).await {
                    Ok(false) => Proof::RolledBack,
                    Ok(true) | Err(_) => Proof::NotOurs,
                }
            }
            proof => proof,
        }
    }

    /// Runs a step that may not take long.
    async fn step<T>(
        &mut self,
        step: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        // Dropped in the middle, it leaves the connection in doubt.
        let ended = timeout(PATIENCE, self.run(step)).await;
        ended.unwrap_or_else(|_| Err(timed_out()))
    }

    /// The savepoint is there only as long as the transaction is, and its name is nobody else's.
    async fn ask(&mut self, sql: String) -> Proof {
        self.asked += 1;
        let savepoint = self.savepoint.clone();
        let nonce = format!("{savepoint}_{}", self.asked);
        let asking = async |conn: &mut DB::Connection| DB::ask(conn, sql, &savepoint, nonce).await;
        match self.step(asking).await {
            Ok(()) => Proof::Ours,
            Err(sqlx::Error::Database(error)) if DB::lacks_savepoint(error.as_ref()) => {
                Proof::NotOurs
            }
            Err(error) => Proof::Unasked(error),
        }
    }

    /// Commits, whatever is nested. The connection goes back when the leash is dropped.
    pub(crate) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        let commit = async |conn: &mut DB::Connection| {
            DB::simple(conn, SqlStr::from_static(DB::COMMIT)).await
        };
        let ended = self.run(commit).await;
        if let (Err(_), Some(sql)) = (&ended, DB::AFTER_FAILED_COMMIT) {
            let end =
                async |conn: &mut DB::Connection| DB::simple(conn, SqlStr::from_static(sql)).await;
            let _ = self.step(end).await;
        }
        self.committed = ended.is_ok();
        ended
    }

    /// Rolls back, and returns when the database has done so, or is about to.
    pub(crate) async fn rollback(&mut self) {
        let unwinding = async |conn: &mut DB::Connection| {
            unwind::<DB>(conn, false).await?;
            // The roll-back may have been queued only; a ping waits for it.
            conn.ping().await
        };
        let _ = self.step(unwinding).await;
        self.unwound = true;
    }

    fn loan(&mut self) -> &mut Loan<DB> {
        self.loan.as_mut().expect(THERE)
    }
}

const THERE: &str = "there until it is dropped";

/// Takes a connection out of all transactions that it is in.
///
/// Where `begin_with` is called inside of a transaction, sqlx 0.9 fails, and rolls the innermost
/// level back: the one way to count down that it offers.
async fn unwind<DB: Dialect>(
    conn: &mut DB::Connection,
    committed: bool,
) -> Result<(), sqlx::Error> {
    let literally = SqlStr::from_static;
    if let (false, Some(sql)) = (committed, DB::UNDO) {
        past_queued::<DB>(conn, sql).await?;
    }
    if conn.is_in_transaction() {
        for sql in DB::BEFORE_UNWINDING {
            let _ = DB::simple(conn, literally(sql)).await;
        }
        for _ in 0..MAX_DEPTH {
            let _ = conn.begin_with("ROLLBACK").await;
            if !conn.is_in_transaction() {
                return Ok(());
            }
            // Where the roll-back is queued, its error is that of the statement after it.
            let _ = conn.ping().await;
        }
    }
    // sqlx has ended it already, and the handler may have begun another by hand.
    let _ = DB::simple(conn, literally("ROLLBACK")).await;
    Ok(())
}

/// Runs a statement until it is not given the error of a roll-back that the driver had queued: then
/// it has not been sent.
async fn past_queued<DB: Dialect>(
    conn: &mut DB::Connection,
    sql: &'static str,
) -> Result<(), sqlx::Error> {
    for _ in 0..MAX_DEPTH {
        match DB::simple(conn, SqlStr::from_static(sql)).await {
            Err(sqlx::Error::Database(_)) => {}
            ended => return ended,
        }
    }
    Err(timed_out())
}

impl<DB: Dialect> Drop for Leash<DB> {
    /// However it ends, a time-out included: the connection is unwound before the pool has it back.
    fn drop(&mut self) {
        if self.unwound {
            return;
        }
        if let (Some(mut loan), Ok(runtime)) = (self.loan.take(), Handle::try_current()) {
            let committed = self.committed;
            runtime.spawn(async move {
                let unwinding =
                    loan.run(async |conn: &mut DB::Connection| unwind::<DB>(conn, committed).await);
                let _ = timeout(PATIENCE, unwinding).await;
            });
        }
    }
}

impl<DB: Dialect> Deref for Leash<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.loan.as_ref().expect(THERE)
    }
}

impl<DB: Dialect> DerefMut for Leash<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.loan()
    }
}

pub(crate) fn hex(token: &ClaimToken) -> String {
    let mut text = String::with_capacity(32);
    for byte in token.as_bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
