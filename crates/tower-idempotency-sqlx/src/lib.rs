//! Stores of [`tower-idempotency`](https://docs.rs/tower-idempotency) over sqlx.
//!
//! Applications use the crate `tower-idempotency`, which re-exports this one. A pool becomes a
//! store where a layer is made of it: `IdempotencyLayer::new(pool)`.

// Without a database there is nobody to use what they have in common.
#![cfg_attr(
    not(any(feature = "mysql", feature = "postgres", feature = "sqlite")),
    allow(dead_code, unused_macros)
)]

#[macro_use]
mod driver;
mod check;
mod complete;
mod dialect;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod harden;
mod joined;
mod leash;
mod loan;
mod migrate;
mod queries;
mod row;
#[cfg_attr(sql_mutants, path = "sent/mutants.rs")]
mod sent;
mod store;
mod sweep;
mod tx;
#[cfg(feature = "postgres")]
mod unprepared;

pub use check::{Finding, Severity};
pub use dialect::Dialect;
pub use harden::harden;
pub use migrate::migrate;
pub use store::SqlxStore;
pub use sweep::sweep;
pub use tx::{Tx, TxConnection};
