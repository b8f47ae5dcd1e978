//! The protocol of [`tower-idempotency`](https://docs.rs/tower-idempotency), its layer, and the
//! contract of its stores. Knows no database.
//!
//! Applications use the crate `tower-idempotency`. This one is for those who implement a
//! [`Store`] of their own: it has all that the contract needs, and no driver.

mod body;
mod claim;
mod error;
mod fingerprint;
mod finish;
mod future;
mod gate;
mod headers;
mod hints;
mod key;
mod layer;
mod lease;
mod memory;
mod method;
mod naming;
mod operation;
mod owner;
mod patience;
mod policy;
mod problem;
pub mod problems;
mod record;
mod resource;
mod response;
mod route;
mod run;
mod service;
mod slot;
mod store;
mod unclaimed;
mod work;

pub use body::ResponseBody;
pub use claim::{Claim, ClaimOutcome, ClaimToken, RecordId};
pub use error::{BoxError, InvalidIdentity, StoreError, TxError};
pub use fingerprint::{Fingerprint, FingerprintBuilder};
pub use future::ResponseFuture;
pub use headers::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};
pub use key::{IdempotencyKey, KeyError, KeyGrammar};
pub use layer::IdempotencyLayer;
pub use lease::Lease;
pub use memory::{MemoryClock, MemoryStore, MemoryTx, Writes};
pub use operation::Operation;
pub use owner::Owner;
pub use policy::{Codec, Scope, Work};
pub use problem::{Problem, ProblemKind};
pub use record::{Decision, Record, RecordState, StoredContent, StoredResponse};
pub use resource::{ResourceRef, TombstoneResource};
pub use service::Idempotency;
pub use slot::{Closed, TxGuard, TxSlot};
pub use store::{Completion, IntoStore, Resolution, Rollback, Store};
