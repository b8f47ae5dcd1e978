//! What differs between the databases: one file each, of the same shape.

use std::future::Future;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Database, SqlSafeStr, SqlStr};

use crate::check::Finding;
use crate::driver::Driver;

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

/// A database that can hold records: `Postgres` and `Sqlite`, each with the feature of its name.
///
/// Sealed: its items are private. To use another database, implement
/// [`Store`](tower_idempotency_core::Store).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no database of tower-idempotency",
    note = "switch on the crate's feature `postgres` or `sqlite`"
)]
pub trait Dialect: sealed::DialectImpl {}

impl<DB: sealed::DialectImpl> Dialect for DB {}

/// The statements, with the same columns and parameters on every database.
///
/// Parameters are numbered. `id` stands for owner, operation and key, which are 1, 2 and 3;
/// times are milliseconds from now. Tables are qualified, so that a `search_path` cannot hide them,
/// and columns named, so that an ALTER does not break cached plans.
#[derive(Debug)]
pub struct Sql {
    /// id -> the record's columns, in the order of [`crate::row`].
    pub lookup: &'static str,
    /// id, token, fingerprint, stale_after -> the columns, with the state `acquired` where the
    /// record is new. No row: ask [`Sql::lookup`].
    pub claim: &'static str,
    /// id, token, fingerprint, stale_after, seen token: a stale claim or expired result.
    pub replace: &'static str,
    /// id, token, status, kept, headers, body, resource_ref, ttl, within the transaction.
    pub complete: &'static str,
    /// As `complete`, in a transaction of its own.
    pub complete_alone: &'static str,
    /// id, token.
    pub free: &'static str,
    /// id, token, stale_after.
    pub renew: &'static str,
    /// id, token, status.
    pub mark_unknown: &'static str,
    /// owner, operation, resource_ref.
    pub tombstone: &'static str,
    /// owner.
    pub erase_owner: &'static str,
    /// limit.
    pub purge_expired: &'static str,
    /// limit, age.
    pub purge_stale: &'static str,
}

/// What a database's error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Unreachable, going down, or too busy.
    Unavailable,
    /// A concurrent transaction won.
    Conflict,
    /// Somebody else's uncommitted work holds the row.
    Locked,
    /// The table is not there.
    NoTable,
    /// Anything else.
    Other,
}

pub(crate) mod sealed {
    use super::{Database, Driver, ErrorClass, Finding, Future, Migrator, Sql, SqlStr};

    /// The part of [`super::Dialect`] that is nobody else's.
    #[allow(unnameable_types)]
    pub trait DialectImpl: Driver {
        /// The statements.
        const SQL: &'static Sql;
        /// Whether one transaction at a time writes: others then wait in line outside of the
        /// database, where they hold no connection.
        const SINGLE_WRITER: bool;
        /// Whether a claim looks before it inserts, because an insert waits for any other writer.
        const LOOKS_FIRST: bool;
        /// Whether [`Sql::complete`] has the proof that the transaction is ours in it.
        const COMPLETION_PROVES: bool;

        /// What makes sqlx's count of nested transactions match the database's again, whatever
        /// has become of either: statements that are run, their errors ignored, before the count
        /// is unwound.
        const BEFORE_UNWINDING: &'static [&'static str];

        /// Commits whatever is nested. Where the driver counts down by sending a roll-back all the
        /// same, there is something to roll back afterwards.
        const COMMIT: &'static str;

        /// Begins a transaction that can be proven to be ours: the token is in hexadecimal digits,
        /// and part of the savepoint's name.
        fn begin(token: &str, savepoint: &str) -> SqlStr;

        /// Whether the database says that there is no such savepoint, or no transaction at all.
        fn lacks_savepoint(error: &dyn sqlx::error::DatabaseError) -> bool;

        /// What an error of the database means.
        fn classify(error: &dyn sqlx::error::DatabaseError) -> ErrorClass;

        /// Whether a COMMIT that ended with this error of the database certainly did not happen.
        fn certainly_not_committed(error: &dyn sqlx::error::DatabaseError) -> bool;

        /// What is to be known of the database at start.
        fn findings(
            pool: &sqlx::Pool<Self>,
        ) -> impl Future<Output = Result<Vec<Finding>, sqlx::Error>> + Send;

        /// The migrations, with a table of their own.
        fn migrator() -> Migrator;

        /// Runs them.
        fn run_migrations(
            pool: &sqlx::Pool<Self>,
        ) -> impl Future<Output = Result<(), sqlx::migrate::MigrateError>> + Send
        where
            Self: Database;
    }
}

/// Makes a migrator of numbered files.
fn migrator(files: &[(i64, &'static str, &'static str)]) -> Migrator {
    let migrations = files.iter().map(|(version, description, sql)| {
        let (description, sql) = ((*description).into(), (*sql).into_sql_str());
        Migration::new(*version, description, MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(migrations.collect())
}
