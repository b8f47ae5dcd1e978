//! Stores of [`tower-idempotency`](https://docs.rs/tower-idempotency) over sqlx.
//!
//! Applications use the crate `tower-idempotency`, which re-exports this one. A pool becomes a
//! store where a layer is made of it: `IdempotencyLayer::new(pool)`.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[macro_use]
mod driver;
mod dialect;
mod migrate;
mod queries;
mod row;
mod store;
mod sweep;
mod tx;

pub use dialect::Dialect;
pub use migrate::migrate;
pub use store::SqlxStore;
pub use sweep::sweep;
pub use tx::{Tx, TxConnection};
