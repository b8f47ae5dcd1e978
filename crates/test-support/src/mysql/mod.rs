//! MySQL and MariaDB: a MariaDB server, and databases on it or on any that speaks their protocol.

mod admin;
mod binaries;
mod database;
mod node;
mod server;

#[cfg(test)]
mod tests;

pub use admin::MysqlAdmin;
pub use binaries::MariadbBinaries;
pub use database::{MysqlDatabase, mysql_database};
pub use node::MariadbNode;
pub use server::MariadbServer;

use crate::error::Engine;

pub(crate) static ENGINE: Engine = Engine {
    name: "MariaDB",
    wanted: "MariaDB 10.6",
    word: "mysql",
    variable: "TEST_MYSQL_URL",
    users: &["mysql", "nobody"],
};
