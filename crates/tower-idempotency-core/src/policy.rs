//! What the application decides: its hooks, as the layer calls them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, request, response};

use crate::claim::RecordId;
use crate::error::BoxError;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::record::StoredContent;

/// Wraps the work of a request: see [`IdempotencyLayer::scope_with`](crate::IdempotencyLayer::scope_with).
pub type Scope = Box<dyn FnOnce(Work) -> Work + Send>;

/// The work of a request: see [`IdempotencyLayer::scope_with`](crate::IdempotencyLayer::scope_with).
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) type ScopeHook = Arc<dyn Fn() -> Scope + Send + Sync>;
pub(crate) type NamingHook = Arc<dyn Fn(&request::Parts) -> Option<Operation> + Send + Sync>;
pub(crate) type BodyHook = Arc<dyn Fn(&request::Parts, &Bytes) -> Bytes + Send + Sync>;
pub(crate) type ProblemHook = Arc<dyn Fn(&Problem) -> Response<Bytes> + Send + Sync>;
pub(crate) type ReplayHook =
    Arc<dyn Fn(&request::Parts, &response::Parts) -> Option<Response<Bytes>> + Send + Sync>;

/// Changes what is stored of a response, and back: encrypts it, compresses it, leaves secrets out.
///
/// Both directions get the record's identity, for instance as the associated data of an
/// authenticated cipher, so that nobody can move one record's result to another.
///
/// # Errors
///
/// An error of [`encode`](Codec::encode) rolls the request back and frees its key; one of
/// [`decode`](Codec::decode), for instance for a wrong key, is answered 500 `record-unreadable`,
/// and the request never runs again.
pub trait Codec: Send + Sync + 'static {
    /// From what is replayed to what is stored.
    ///
    /// # Errors
    ///
    /// When it cannot be encoded.
    fn encode(&self, id: &RecordId, content: StoredContent) -> Result<StoredContent, BoxError>;

    /// From what is stored to what is replayed.
    ///
    /// # Errors
    ///
    /// When it cannot be decoded.
    fn decode(&self, id: &RecordId, content: StoredContent) -> Result<StoredContent, BoxError>;
}

impl fmt::Debug for dyn Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Codec(..)")
    }
}
