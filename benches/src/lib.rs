//! What the layer costs, side by side with bare handlers and with its protocol written by hand:
//! what the figures of `cargo xtask bench` and the other crates in `benches/peers` share.
//!
//! All of it panics where it cannot measure: a figure of something else would be worse than none.

#![expect(
    clippy::missing_panics_doc,
    reason = "a harness: the documentation above says it once"
)]

pub mod cell;
mod chart;
pub mod database;
pub mod load;
pub mod pairs;
pub mod place;
pub mod post;
pub mod sheet;
pub mod stats;
pub mod subject;

/// How many connections a pool has, unless the figure says otherwise.
pub const CONNECTIONS: u32 = 16;
