//! A transaction that never goes back to the pool half ended.
//!
//! sqlx 0.9 counts how deep a connection is in nested transactions, does not tell, and trusts its
//! count: where a nested transaction was forgotten, or ended by hand, its `commit()` releases a
//! savepoint and says that all is well, or fails and gives the connection back inside of the
//! transaction. So nothing here asks sqlx to commit or to roll back: the database is told literally,
//! and the count is unwound afterwards.

use std::fmt::Write as _;
use std::ops::{Deref, DerefMut};

use sqlx::{AssertSqlSafe, Connection as _, Pool, SqlSafeStr as _, SqlStr, Transaction};
use tokio::runtime::Handle;
use tower_idempotency_core::ClaimToken;

use crate::dialect::Dialect;

/// A transaction of ours, and the proof that it still is.
pub(crate) struct Leash<DB: Dialect> {
    /// `None` only while it is being dropped.
    transaction: Option<Transaction<'static, DB>>,
    savepoint: String,
    /// Whether the connection has been taken out of all transactions already.
    unwound: bool,
}

/// Whether a transaction is still the one that was begun.
#[derive(Debug)]
pub(crate) enum Proof {
    /// It is.
    Ours,
    /// It was ended by somebody else.
    NotOurs,
    /// It could not be asked.
    Unasked(sqlx::Error),
}

/// The deepest nesting that is unwound.
const MAX_DEPTH: usize = 64;

impl<DB: Dialect> Leash<DB> {
    /// Begins a transaction. To be run in a task that nothing cancels.
    pub(crate) async fn begin(pool: &Pool<DB>, token: &ClaimToken) -> Result<Self, sqlx::Error> {
        let token = hex(token);
        let savepoint = format!("tower_idempotency_{token}");
        let transaction = pool.begin_with(DB::begin(&token, &savepoint)).await?;
        Ok(Self {
            transaction: Some(transaction),
            savepoint,
            unwound: false,
        })
    }

    /// Proves that the transaction is ours and not aborted, and ends what was left nested in it.
    pub(crate) async fn prove(&mut self) -> Proof {
        let sql = format!("RELEASE SAVEPOINT {0}; SAVEPOINT {0}", self.savepoint);
        self.ask(sql).await
    }

    /// Proves that the transaction is ours though it may be aborted, and undoes what was written.
    pub(crate) async fn prove_and_undo(&mut self) -> Proof {
        let sql = format!("ROLLBACK TO SAVEPOINT {}", self.savepoint);
        self.ask(sql).await
    }

    /// The savepoint is there only as long as the transaction is, and its name is nobody else's.
    async fn ask(&mut self, sql: String) -> Proof {
        // Made of hexadecimal digits and words of ours.
        let sql = AssertSqlSafe(sql).into_sql_str();
        match DB::simple(self, sql).await {
            Ok(()) => Proof::Ours,
            Err(sqlx::Error::Database(error)) if DB::lacks_savepoint(error.as_ref()) => {
                Proof::NotOurs
            }
            Err(error) => Proof::Unasked(error),
        }
    }

    /// Commits, whatever is nested. The connection goes back when the leash is dropped.
    pub(crate) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        let ended = DB::simple(self, SqlStr::from_static(DB::COMMIT)).await;
        if let (Err(_), Some(sql)) = (&ended, DB::AFTER_FAILED_COMMIT) {
            let _ = DB::simple(self, SqlStr::from_static(sql)).await;
        }
        ended
    }

    /// Rolls back, and returns when the database has done so.
    pub(crate) async fn rollback(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            unwind::<DB>(transaction).await;
            self.unwound = true;
            // The roll-back may have been queued only; a ping waits for it.
            let _ = transaction.ping().await;
        }
    }
}

/// Takes a connection out of all transactions that it is in.
///
/// Where `begin_with` is called inside of a transaction, sqlx 0.9 fails, and rolls the innermost
/// level back: the one way to count down that it offers.
async fn unwind<DB: Dialect>(transaction: &mut Transaction<'static, DB>) {
    let literally = SqlStr::from_static;
    if transaction.is_in_transaction() {
        for sql in DB::BEFORE_UNWINDING {
            let _ = DB::simple(transaction, literally(sql)).await;
        }
        for _ in 0..MAX_DEPTH {
            let _ = transaction.begin_with("ROLLBACK").await;
            if !transaction.is_in_transaction() {
                return;
            }
            // Where the roll-back is queued, its error is that of the statement after it.
            let _ = transaction.ping().await;
        }
    }
    // sqlx has ended it already, and the handler may have begun another by hand.
    let _ = DB::simple(transaction, literally("ROLLBACK")).await;
}

impl<DB: Dialect> Drop for Leash<DB> {
    /// However it ends, a time-out included: the connection is unwound before the pool has it back.
    fn drop(&mut self) {
        if self.unwound {
            return;
        }
        if let (Some(mut transaction), Ok(runtime)) =
            (self.transaction.take(), Handle::try_current())
        {
            runtime.spawn(async move { unwind::<DB>(&mut transaction).await });
        }
    }
}

impl<DB: Dialect> Deref for Leash<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.transaction
            .as_ref()
            .expect("there until it is dropped")
    }
}

impl<DB: Dialect> DerefMut for Leash<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.transaction
            .as_mut()
            .expect("there until it is dropped")
    }
}

fn hex(token: &ClaimToken) -> String {
    let mut text = String::with_capacity(32);
    for byte in token.as_bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
