//! What errors of sqlx's mean.

use std::error::Error as StdError;
use std::fmt;

use tower_idempotency_core::StoreError;

use crate::dialect::{Dialect, ErrorClass};

/// What a client, a log and the layer are to make of an error of sqlx's.
pub(crate) fn store_error<DB: Dialect>(error: sqlx::Error) -> StoreError {
    match classify::<DB>(&error) {
        ErrorClass::Disconnected | ErrorClass::Unavailable | ErrorClass::Locked => {
            StoreError::unavailable(error)
        }
        ErrorClass::Conflict => StoreError::conflict(error),
        ErrorClass::NoTable => StoreError::other(NoTable(error)),
        ErrorClass::Other => match error {
            sqlx::Error::Encode(_) | sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => {
                StoreError::encoding(error)
            }
            error => StoreError::other(error),
        },
    }
}

pub(crate) fn classify<DB: Dialect>(error: &sqlx::Error) -> ErrorClass {
    match error {
        sqlx::Error::Database(error) => DB::classify(error.as_ref()),
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => ErrorClass::Disconnected,
        sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => ErrorClass::Unavailable,
        _ => ErrorClass::Other,
    }
}

/// The table of records is not there.
#[derive(Debug)]
struct NoTable(sqlx::Error);

impl fmt::Display for NoTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the table of records is missing: call `tower_idempotency::migrate(&pool).await?` at start")
    }
}

impl StdError for NoTable {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

/// Took too long, with the connection in an unknown state.
pub(crate) fn timed_out() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}
