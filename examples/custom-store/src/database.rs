//! The database: who reads, and whose turn it is to write.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redb::{Database, Error, ReadTransaction, ReadableDatabase};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tower_idempotency::StoreError;

use crate::record::RECORDS;
use crate::records::Records;
use crate::tx::Turn;

/// How long an arrival waits in line to claim: it has nothing to lose yet.
pub(crate) const CLAIM_PATIENCE: Duration = Duration::from_millis(500);

/// How long everybody else waits.
pub(crate) const WRITER_PATIENCE: Duration = Duration::from_secs(5);

/// Keeps records in a redb database, next to the data that they protect. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RedbStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Database,
    /// `begin_write` would queue as well, but each in line would hold a thread, for ever.
    line: Arc<Semaphore>,
    advanced_ms: AtomicU64,
}

impl RedbStore {
    /// Opens the database in that file, and makes it where there is none.
    ///
    /// # Errors
    ///
    /// When the file is open already, is no database, or holds records of another kind.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let database = Database::create(path)?;
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        Ok(Self(Arc::new(Inner {
            database,
            line: Arc::new(Semaphore::new(1)),
            advanced_ms: AtomicU64::new(0),
        })))
    }

    /// Reads what is committed. Waits for no writer.
    ///
    /// # Errors
    ///
    /// When `read` fails, or the database.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.clone();
        let reading = move || {
            let transaction = store.0.database.begin_read()?;
            read(&transaction)
        };
        blocking(reading).await?.map_err(failed)
    }

    /// For tests: lets that much time pass for the records.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.0.advanced_ms.fetch_add(by, Ordering::SeqCst);
    }

    /// Milliseconds since 1970, by the system: a clock that starts with the process would not do, since
    /// claims outlive it.
    pub(crate) fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        now.saturating_add(self.0.advanced_ms.load(Ordering::SeqCst))
    }

    /// Waits in line to write.
    async fn permit(&self, patience: Duration) -> Result<OwnedSemaphorePermit, StoreError> {
        match timeout(patience, Arc::clone(&self.0.line).acquire_owned()).await {
            Ok(permit) => permit.map_err(StoreError::other),
            Err(elapsed) => Err(StoreError::unavailable(elapsed)),
        }
    }

    fn turn(&self, permit: OwnedSemaphorePermit) -> Result<Turn, StoreError> {
        let transaction = self.0.database.begin_write().map_err(failed)?;
        Ok(Turn::new(transaction, permit))
    }

    /// Begins a transaction for a handler.
    pub(crate) async fn begin(&self) -> Result<Turn, StoreError> {
        let (store, permit) = (self.clone(), self.permit(WRITER_PATIENCE).await?);
        blocking(move || store.turn(permit)).await?
    }

    /// Changes records in a transaction of their own.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        patience: Duration,
        change: impl FnOnce(&mut Records<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (store, permit) = (self.clone(), self.permit(patience).await?);
        let changing = move || {
            let turn = store.turn(permit)?;
            let mut records = Records::within(&turn.transaction, store.now())?;
            let outcome = change(&mut records)?;
            let changed = records.changed();
            drop(records);
            if changed {
                turn.commit().map_err(failed)?;
            }
            Ok(outcome)
        };
        blocking(changing).await?
    }
}

/// Runs a step that may wait for the disk on a thread where that is no harm. It comes to its end
/// also where nobody waits for it any more: a commit is never left half-way.
pub(crate) async fn blocking<T: Send + 'static>(
    step: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    spawn_blocking(step).await.map_err(StoreError::other)
}

/// What the layer is to make of an error of redb's.
pub fn failed(error: impl Into<Error>) -> StoreError {
    match error.into() {
        error @ (Error::Io(_) | Error::PreviousIo | Error::DatabaseClosed) => {
            StoreError::unavailable(error)
        }
        error @ (Error::Corrupted(_)
        | Error::ValueTooLarge(_)
        | Error::TableTypeMismatch { .. }
        | Error::TypeDefinitionChanged { .. }) => StoreError::encoding(error),
        error => StoreError::other(error),
    }
}
