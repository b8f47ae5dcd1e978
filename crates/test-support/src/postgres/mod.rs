//! PostgreSQL: its binaries, a server, and databases on it.

mod admin;
mod binaries;
mod database;
mod error;
mod server;
mod shared;

#[cfg(test)]
mod tests;

pub use admin::Admin;
pub use binaries::Binaries;
pub use database::{TestDatabase, idle_in_transaction, postgres_database};
pub use error::ServerError;
pub use server::{PostgresServer, ServerSettings};
pub use shared::run_prefix;
