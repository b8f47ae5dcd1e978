//! The text of a statement on its way to the database: as it is written.
//!
//! Where `cargo xtask mutants sql` builds this crate, `sent/mutants.rs` is in the place of this file.

use sqlx::SqlStr;

/// A statement of [`crate::dialect::Sql`].
pub(crate) fn statement(sql: &'static str) -> &'static str {
    sql
}

/// Statements that were put together.
pub(crate) fn composed(sql: SqlStr) -> SqlStr {
    sql
}
