//! What can go wrong, typed.

use std::error::Error as StdError;
use std::fmt;

use axum_core::response::{IntoResponse, Response};

use crate::problem::{Problem, ProblemKind};
use crate::work::log_store_failure;

/// Any error, boxed.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// A part of a record's identity is out of bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidIdentity {
    what: &'static str,
    max: usize,
    reserved: bool,
}

impl InvalidIdentity {
    /// The one rule of owners, operations and references.
    pub(crate) fn check(what: &'static str, text: &str, max: usize) -> Result<(), Self> {
        if text.is_empty() || text.len() > max || text.contains('\0') {
            return Err(Self {
                what,
                max,
                reserved: false,
            });
        }
        Ok(())
    }

    /// The text stands for something else.
    pub(crate) fn reserved(what: &'static str, max: usize) -> Self {
        Self {
            what,
            max,
            reserved: true,
        }
    }
}

impl fmt::Display for InvalidIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reserved {
            return write!(f, "this {} is reserved", self.what);
        }
        write!(
            f,
            "{} must have 1 to {} bytes and no NUL",
            self.what, self.max
        )
    }
}

impl StdError for InvalidIdentity {}

/// A step at the store failed.
///
/// Opaque: ask it with the `is_*` methods. `Display` prints one level; the driver's error is the
/// [`source`](StdError::source). Nothing of it ever goes to a client.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<BoxError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreErrorKind {
    Unavailable,
    Conflict,
    Encoding,
    Other,
}

impl StoreError {
    /// The store cannot be reached, or is too busy to answer in time. Nothing was changed.
    #[must_use]
    pub fn unavailable(source: impl Into<BoxError>) -> Self {
        Self::new(StoreErrorKind::Unavailable, source)
    }

    /// A concurrent transaction won: a serialisation failure or a deadlock. Trying again is right.
    #[must_use]
    pub fn conflict(source: impl Into<BoxError>) -> Self {
        Self::new(StoreErrorKind::Conflict, source)
    }

    /// A value cannot be stored, or what is stored cannot be read.
    #[must_use]
    pub fn encoding(source: impl Into<BoxError>) -> Self {
        Self::new(StoreErrorKind::Encoding, source)
    }

    /// Anything else: a missing table, a failed constraint, a bug.
    #[must_use]
    pub fn other(source: impl Into<BoxError>) -> Self {
        Self::new(StoreErrorKind::Other, source)
    }

    /// A step took longer than the layer's `store_timeout`.
    pub(crate) fn timed_out() -> Self {
        Self {
            kind: StoreErrorKind::Unavailable,
            source: None,
        }
    }

    fn new(kind: StoreErrorKind, source: impl Into<BoxError>) -> Self {
        Self {
            kind,
            source: Some(source.into()),
        }
    }

    /// Whether the store could not be reached or was too busy.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.kind == StoreErrorKind::Unavailable
    }

    /// Whether a concurrent transaction won.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.kind == StoreErrorKind::Conflict
    }

    /// Whether a value could not be stored or read.
    #[must_use]
    pub fn is_encoding(&self) -> bool {
        self.kind == StoreErrorKind::Encoding
    }

    /// The problem a client is told: what can be retried is 503.
    pub(crate) fn problem(&self) -> Problem {
        match self.kind {
            StoreErrorKind::Unavailable | StoreErrorKind::Other => ProblemKind::StoreUnavailable,
            StoreErrorKind::Conflict => ProblemKind::ConflictRetry,
            StoreErrorKind::Encoding => ProblemKind::RecordUnreadable,
        }
        .into()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store is unavailable or too busy",
            StoreErrorKind::Conflict => "a concurrent transaction won",
            StoreErrorKind::Encoding => "a value cannot be stored or read",
            StoreErrorKind::Other => "the store failed",
        })
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

/// The request's transaction cannot be had.
///
/// Opaque: ask it with the `is_*` methods. It is a response, so `?` works in handlers: 503 where
/// the store is busy or a claim was lost, 500 where the code is at fault.
#[derive(Debug)]
pub struct TxError(TxErrorKind);

#[derive(Debug)]
enum TxErrorKind {
    Held,
    Closed,
    Refused(&'static str),
    ClaimLost,
    Store(StoreError),
}

impl TxError {
    /// A guard of an earlier `acquire()` is still alive. Waiting for it would be a deadlock.
    #[must_use]
    pub fn held() -> Self {
        Self(TxErrorKind::Held)
    }

    /// The request has been answered; its transaction is over.
    #[must_use]
    pub fn closed() -> Self {
        Self(TxErrorKind::Closed)
    }

    /// This request has no transaction, for the given reason.
    #[must_use]
    pub fn refused(why: &'static str) -> Self {
        Self(TxErrorKind::Refused(why))
    }

    /// The claim was taken over before the transaction began.
    #[must_use]
    pub fn claim_lost() -> Self {
        Self(TxErrorKind::ClaimLost)
    }

    /// Whether an earlier guard is still alive.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.0, TxErrorKind::Held)
    }

    /// Whether the request has been answered already.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.0, TxErrorKind::Closed)
    }

    /// Whether this request has no transaction.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.0, TxErrorKind::Refused(_))
    }

    /// Whether the claim was taken over before the transaction began.
    #[must_use]
    pub fn is_claim_lost(&self) -> bool {
        matches!(self.0, TxErrorKind::ClaimLost)
    }

    /// Whether the store was unreachable or too busy.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(&self.0, TxErrorKind::Store(error) if error.is_unavailable())
    }
}

impl From<StoreError> for TxError {
    fn from(error: StoreError) -> Self {
        Self(TxErrorKind::Store(error))
    }
}

impl fmt::Display for TxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TxErrorKind::Held => f.write_str(
                "the transaction is in use: drop the guard of the earlier `acquire()` first",
            ),
            TxErrorKind::Closed => f.write_str(
                "the request has been answered: its transaction cannot be used any more",
            ),
            TxErrorKind::Refused(why) => write!(f, "this request has no transaction: {why}"),
            TxErrorKind::ClaimLost => {
                f.write_str("the claim was taken over before the transaction began")
            }
            TxErrorKind::Store(_) => f.write_str("the transaction failed"),
        }
    }
}

impl StdError for TxError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0 {
            TxErrorKind::Store(error) => Some(error),
            TxErrorKind::Held
            | TxErrorKind::Closed
            | TxErrorKind::Refused(_)
            | TxErrorKind::ClaimLost => None,
        }
    }
}

impl From<TxError> for Problem {
    fn from(error: TxError) -> Self {
        match &error.0 {
            TxErrorKind::Store(error) => log_store_failure("begin", error),
            TxErrorKind::Held
            | TxErrorKind::Closed
            | TxErrorKind::Refused(_)
            | TxErrorKind::ClaimLost => tracing::warn!(%error, "no transaction"),
        }
        match &error.0 {
            TxErrorKind::Store(error) => error.problem(),
            TxErrorKind::ClaimLost => ProblemKind::InProgress.into(),
            TxErrorKind::Held | TxErrorKind::Closed | TxErrorKind::Refused(_) => {
                ProblemKind::TransactionUnusable.into()
            }
        }
    }
}

impl IntoResponse for TxError {
    fn into_response(self) -> Response {
        Problem::from(self).into_response()
    }
}
