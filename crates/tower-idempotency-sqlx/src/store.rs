//! The store over a connection pool.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Pool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tower_idempotency_core::{
    Claim, ClaimOutcome, ClaimToken, Closed, Completion, Decision, IntoStore, Lease, Owner, Record,
    RecordId, Resolution, Rollback, Store, StoreError, StoredResponse, TombstoneResource, TxError,
    TxSlot,
};

use crate::check::Finding;
use crate::complete::still_claimed_by;
use crate::dialect::{Dialect, ErrorClass};
use crate::driver::Sending;
use crate::error::{classify, store_error};
use crate::joined::Joined;
use crate::loan::Loan;
use crate::queries;
use crate::row::Row;
use crate::tx::Tx;

/// Keeps records in a database, next to the data that they protect.
///
/// Cheap to clone. Make the table with [`migrate`](crate::migrate) first.
pub struct SqlxStore<DB: Dialect> {
    pub(crate) pool: Pool<DB>,
    /// Who writes, where one at a time can.
    writer: Option<Arc<Semaphore>>,
    pub(crate) sending: Sending,
    /// How claims are made, where they may be joined.
    pub(crate) joined: Option<Arc<Joined<DB>>>,
}

/// How long a writer waits in line: as long as sqlx lets SQLite wait for its lock.
const WRITER_PATIENCE: Duration = Duration::from_secs(5);

/// How often a claim looks again when the record changes under its eyes.
const CLAIM_ATTEMPTS: usize = 8;

impl<DB: Dialect> SqlxStore<DB> {
    /// Makes a store over a pool.
    #[must_use]
    pub fn new(pool: Pool<DB>) -> Self {
        Self {
            joined: DB::JOINING
                .map(|_| Arc::new(Joined::new(pool.clone(), Sending::Prepared, false))),
            pool,
            writer: DB::SINGLE_WRITER.then(|| Arc::new(Semaphore::new(1))),
            sending: Sending::Prepared,
        }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// Looks at the database before it is relied on: the table, its key, the engine's version and
    /// settings, a pooler in between. Log the findings at start; an empty list is good.
    ///
    /// # Errors
    ///
    /// When the database cannot be asked.
    pub async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        DB::findings(&self.pool, self.sending)
            .await
            .map_err(store_error::<DB>)
    }

    /// Waits in line to write, holding no connection meanwhile: writers that wait in SQLite hold
    /// one each, and would starve the readers of the pool.
    pub(crate) async fn writer(&self) -> Result<Option<OwnedSemaphorePermit>, StoreError> {
        let Some(writer) = &self.writer else {
            return Ok(None);
        };
        match timeout(WRITER_PATIENCE, Arc::clone(writer).acquire_owned()).await {
            Ok(permit) => permit.map(Some).map_err(StoreError::other),
            Err(elapsed) => Err(StoreError::unavailable(elapsed)),
        }
    }

    /// Runs one statement that writes, on a connection of its own.
    async fn write<T>(
        &self,
        statement: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let _writer = self.writer().await?;
        let mut loan = Loan::of(&self.pool).await.map_err(store_error::<DB>)?;
        let written = loan.run(async |conn: &mut DB::Connection| {
            let written = statement(conn).await?;
            DB::confirm(conn).await.map(|()| written)
        });
        written.await.map_err(store_error::<DB>)
    }
}

#[cfg(feature = "postgres")]
impl SqlxStore<sqlx::Postgres> {
    /// Commits claims without waiting for the disk: `synchronous_commit = off`, for that statement
    /// alone. Default: they wait.
    ///
    /// Handlers then start sooner, the more so the slower the disk or the synchronous standby is.
    /// What is in the database stays exactly once: a completion still waits, and what it makes
    /// durable includes its claim; a claim that is lost takes its completion with it.
    ///
    /// What it trades: where the **server** crashes, the claims of its last moments are lost (by
    /// default up to 0.6 seconds of them). A retry may then start the handler again at once, while
    /// the first one still runs. One of the two is rolled back, but what they do **outside** of the
    /// database happens twice. Without it, that takes a handler that outlives `stale_after`.
    ///
    /// ```no_run
    /// # use tower_idempotency_core::IdempotencyLayer;
    /// # use tower_idempotency_sqlx::SqlxStore;
    /// # fn layer(pool: sqlx::PgPool) {
    /// let idempotency = IdempotencyLayer::with_store(SqlxStore::new(pool).relaxed_claims());
    /// # }
    /// ```
    #[must_use]
    pub fn relaxed_claims(mut self) -> Self {
        self.joined = Some(Arc::new(Joined::new(self.pool.clone(), self.sending, true)));
        self
    }
}

impl<DB: Dialect> SqlxStore<DB> {
    async fn find(&self, id: &RecordId) -> Result<Option<Row>, sqlx::Error> {
        let mut loan = Loan::of(&self.pool).await?;
        let looking =
            async |conn: &mut DB::Connection| queries::lookup::<DB>(conn, self.sending, id).await;
        loan.run(looking).await
    }

    async fn insert(&self, claim: &Claim) -> Result<Option<Row>, sqlx::Error> {
        if let Some(joined) = &self.joined {
            return joined.claim(claim).await;
        }
        let Some(writer) = self.writer().await.map_err(out_of_line)? else {
            return insert(&self.pool, self.sending, claim, false).await;
        };
        // In a task that nothing cancels, with its place in the line: what frees the claim
        // afterwards then comes after it.
        let (pool, sending, claim) = (self.pool.clone(), self.sending, claim.clone());
        let inserted = tokio::spawn(async move {
            let inserted = insert(&pool, sending, &claim, false).await;
            drop(writer);
            inserted
        });
        inserted.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }
}

pub(crate) async fn insert<DB: Dialect>(
    pool: &Pool<DB>,
    sending: Sending,
    claim: &Claim,
    relaxed: bool,
) -> Result<Option<Row>, sqlx::Error> {
    let mut loan = Loan::of(pool).await?;
    let claiming =
        async |conn: &mut DB::Connection| queries::claim::<DB>(conn, sending, claim, relaxed).await;
    loan.run(claiming).await
}

/// Nobody got a turn to write in time.
fn out_of_line(_: StoreError) -> sqlx::Error {
    sqlx::Error::PoolTimedOut
}

/// Spreads those who meet at one record; the token is as random as it gets.
async fn pause(attempt: usize, token: &ClaimToken) {
    let jitter = u64::from(token.as_bytes()[attempt % 16]) % 16;
    sleep(Duration::from_millis(2 + jitter)).await;
}

impl<DB: Dialect> Store for SqlxStore<DB> {
    type Tx = Tx<DB>;

    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let mut look = DB::LOOKS_FIRST;
        let mut blocked = None;
        let mut replacing = false;
        let mut reconnected = false;
        for attempt in 0..CLAIM_ATTEMPTS {
            let found = if look {
                self.find(&claim.id).await
            } else {
                self.insert(claim).await
            };
            let row = match found {
                Ok(row) => row,
                Err(error) => match classify::<DB>(&error) {
                    ErrorClass::Conflict => {
                        pause(attempt, &claim.token).await;
                        continue;
                    }
                    // What is committed decides; nobody waits for what is not.
                    ErrorClass::Locked => {
                        look = true;
                        blocked = Some(error);
                        continue;
                    }
                    // A connection that died in the pool. The claim carries its own token, so
                    // that a second one is the same.
                    ErrorClass::Disconnected if !reconnected => {
                        reconnected = true;
                        continue;
                    }
                    ErrorClass::Disconnected
                    | ErrorClass::Unavailable
                    | ErrorClass::NoTable
                    | ErrorClass::Other => {
                        return Err(store_error::<DB>(error));
                    }
                },
            };
            let Some(row) = row else {
                if let Some(error) = blocked.take_if(|_| look) {
                    return Err(store_error::<DB>(error));
                }
                // Absent when it was looked for: insert. Not to be seen by the insert, or too large for
                // a statement that others wait for: look.
                look = !look;
                continue;
            };
            if row.is_acquired() {
                return Ok(ClaimOutcome::Acquired { taken_over: false });
            }
            let record = row.into_record()?;
            if still_claimed_by(Some(&record), claim) {
                return Ok(ClaimOutcome::Acquired { taken_over: false });
            }
            match record.decide(&claim.fingerprint) {
                Decision::Answer(outcome) => return Ok(outcome),
                Decision::Replace { seen, stale } => {
                    let replaced = self
                        .write(async |conn| {
                            queries::replace::<DB>(conn, self.sending, claim, &seen).await
                        })
                        .await;
                    match replaced {
                        Ok(true) => return Ok(ClaimOutcome::Acquired { taken_over: stale }),
                        Ok(false) => {}
                        Err(error) if error.is_conflict() => {}
                        Err(error) => return Err(error),
                    }
                    replacing = true;
                    look = true;
                    pause(attempt, &claim.token).await;
                }
            }
        }
        if replacing {
            // Somebody else is at it, in a transaction that has not ended.
            return Ok(ClaimOutcome::InProgress);
        }
        Err(StoreError::unavailable(
            "the record changed too often while it was claimed",
        ))
    }

    fn lend(&self, lease: Lease) -> Tx<DB> {
        Tx::new(self.clone(), TxSlot::new(lease))
    }

    async fn complete(&self, tx: &Tx<DB>, claim: &Claim, response: &StoredResponse) -> Completion {
        match tx.slot.close() {
            Closed::Held => Completion::Leaked,
            Closed::Unused => self.complete_alone(claim, tx.slot.lease(), response).await,
            Closed::Begun(open) => {
                self.complete_within(open, claim, tx.slot.lease(), response)
                    .await
            }
        }
    }

    async fn commit(&self, tx: &Tx<DB>) -> Completion {
        match tx.slot.close() {
            Closed::Held => Completion::Leaked,
            Closed::Unused => Completion::Committed,
            Closed::Begun(open) => self.commit_unclaimed(open).await,
        }
    }

    async fn rollback(&self, tx: &Tx<DB>) -> Rollback {
        match tx.slot.close() {
            Closed::Held => Rollback::Leaked,
            Closed::Unused => Rollback::RolledBack,
            Closed::Begun(open) => self.undo(open).await,
        }
    }

    async fn reclaim(&self, tx: &Tx<DB>) -> Rollback {
        match tx.slot.reclaim().await {
            Some(open) => self.undo(open).await,
            None => Rollback::RolledBack,
        }
    }

    async fn resolve(&self, claim: &Claim) -> Result<Resolution, StoreError> {
        // Waits for the row's lock, which a transaction in doubt holds until it has ended.
        if self.free(claim).await? {
            return Ok(Resolution::Freed);
        }
        Ok(Resolution::of(claim, self.lookup(&claim.id).await?))
    }

    async fn free(&self, claim: &Claim) -> Result<bool, StoreError> {
        self.release(&claim.id, &claim.token).await
    }

    async fn renew(&self, claim: &Claim) -> Result<bool, StoreError> {
        self.write(async |conn| queries::renew::<DB>(conn, self.sending, claim).await)
            .await
    }

    async fn mark_unknown(&self, claim: &Claim) -> Result<bool, StoreError> {
        self.write(async |conn| queries::mark_unknown::<DB>(conn, self.sending, claim).await)
            .await
    }

    async fn tombstone_resource(
        &self,
        tx: &Tx<DB>,
        resource: &TombstoneResource,
    ) -> Result<u64, TxError> {
        tx.tombstone_resource(resource.clone()).await
    }

    async fn lookup(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let row = self.find(id).await.map_err(store_error::<DB>)?;
        row.map(Row::into_record).transpose()
    }

    async fn release(&self, id: &RecordId, token: &ClaimToken) -> Result<bool, StoreError> {
        self.write(async |conn| queries::free::<DB>(conn, self.sending, id, token).await)
            .await
    }

    async fn erase_owner(&self, owner: &Owner) -> Result<u64, StoreError> {
        self.write(async |conn| queries::erase_owner::<DB>(conn, self.sending, owner).await)
            .await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.write(async |conn| queries::purge::<DB>(conn, self.sending, limit).await)
            .await
    }
}

impl<DB: Dialect> IntoStore<SqlxStore<DB>> for Pool<DB> {
    fn into_store(self) -> SqlxStore<DB> {
        SqlxStore::new(self)
    }
}

impl<DB: Dialect> Clone for SqlxStore<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            writer: self.writer.clone(),
            sending: self.sending,
            joined: self.joined.clone(),
        }
    }
}

impl<DB: Dialect> fmt::Debug for SqlxStore<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxStore")
            .field("database", &DB::NAME)
            .finish_non_exhaustive()
    }
}
