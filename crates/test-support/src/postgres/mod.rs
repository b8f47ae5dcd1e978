//! PostgreSQL: its binaries, a server, and databases on it.

mod admin;
mod binaries;
mod database;
mod node;
mod server;

#[cfg(test)]
mod tests;

pub use admin::Admin;
pub use binaries::Binaries;
pub use database::{TestDatabase, idle_in_transaction, postgres_database};
pub use node::PostgresNode;
pub use server::{PostgresServer, ServerSettings};

use crate::error::Engine;

pub(crate) static ENGINE: Engine = Engine {
    name: "PostgreSQL",
    wanted: "PostgreSQL 13",
    word: "postgres",
    variable: "TEST_POSTGRES_URL",
    users: &["postgres", "nobody"],
};
