//! What differs between the databases: one file each, of the same shape.

use std::future::Future;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, Database, SqlSafeStr, SqlStr};

use crate::check::Finding;
use crate::driver::{Driver, Sending, Value};
use crate::row::Row;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

/// A database that can hold records: `Postgres`, `Sqlite` and `MySql` (MariaDB too), each with the
/// feature of its name.
///
/// Sealed: its items are private. To use another database, implement
/// [`Store`](tower_idempotency_core::Store).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no database of tower-idempotency",
    note = "switch on the crate's feature `postgres`, `sqlite` or `mysql`"
)]
pub trait Dialect: sealed::DialectImpl {}

impl<DB: sealed::DialectImpl> Dialect for DB {}

/// The statements, with the same columns and parameters on every database.
///
/// Parameters are numbered, in the statement or beside it. `id` stands for owner, operation and key, which are 1, 2 and 3;
/// times are milliseconds from now. Tables are qualified, so that a `search_path` cannot hide them,
/// and columns named, so that an ALTER does not break cached plans.
#[derive(Debug)]
pub struct Sql<S> {
    /// id -> the record's columns, in the order of [`crate::row`]. To be run by
    /// [`sealed::DialectImpl::lookup`].
    pub lookup: S,
    /// id, token, fingerprint, stale_after -> the columns, with the state `acquired` where the
    /// record is new. No row: ask [`Sql::lookup`]. To be run by [`sealed::DialectImpl::claim`].
    pub claim: S,
    /// id, token, fingerprint, stale_after, seen token: a stale claim or expired result.
    pub replace: S,
    /// id, token, status, kept, headers, body, resource_ref, ttl, within the transaction.
    pub complete: S,
    /// As `complete`, in a transaction of its own.
    pub complete_alone: S,
    /// id, token.
    pub free: S,
    /// id, token, stale_after.
    pub renew: S,
    /// id, token, status.
    pub mark_unknown: S,
    /// owner, operation, resource_ref.
    pub tombstone: S,
    /// owner.
    pub erase_owner: S,
    /// limit.
    pub purge_expired: S,
    /// limit, age.
    pub purge_stale: S,
}

/// Claims whose commits share a statement, or do not wait for the disk.
#[derive(Debug)]
pub struct Joining<S> {
    /// As [`Sql::claim`], for arrays of its parameters. It may leave a record out, whose claim then
    /// looks.
    pub many: S,
    /// As [`Sql::claim`], without waiting for the disk.
    pub relaxed: S,
    /// Both.
    pub many_relaxed: S,
}

/// What a database's error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The connection is gone: another may be better.
    Disconnected,
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
    use std::future::ready;

    use tower_idempotency_core::{Claim, ClaimToken};

    use super::{AssertSqlSafe, SqlSafeStr as _};
    use super::{
        Database, Driver, ErrorClass, Finding, Future, Joining, MigrateError, Migrator, Row,
        Sending, Sql, SqlStr, Value,
    };

    /// The part of [`super::Dialect`] that is nobody else's.
    #[allow(unnameable_types)]
    pub trait DialectImpl: Driver {
        /// The statements.
        const SQL: &'static Sql<Self::Written>;
        /// Whether one transaction at a time writes: others then wait in line outside of the
        /// database, where they hold no connection.
        const SINGLE_WRITER: bool;
        /// Whether a claim looks before it inserts, because an insert waits for any other writer.
        const LOOKS_FIRST: bool;
        /// The statements of claims that meet, where one can make many.
        const JOINING: Option<&'static Joining<Self::Written>> = None;

        /// Runs a statement of [`JOINING`](Self::JOINING) for many, in the order of their
        /// identities. Each row comes with the token of the claim that it answers.
        fn claim_many(
            _: &mut Self::Connection,
            _statement: Self::Written,
            _: &[&Claim],
        ) -> impl Future<Output = Result<Vec<(ClaimToken, Row)>, sqlx::Error>> + Send {
            // No row: the claims then look.
            ready(Ok(Vec::new()))
        }

        /// Whether [`Sql::complete`] has the proof that the transaction is ours in it.
        const COMPLETION_PROVES: bool;

        /// What makes sqlx's count of nested transactions match the database's again, whatever
        /// has become of either: statements that are run, their errors ignored, before the count
        /// is unwound.
        const BEFORE_UNWINDING: &'static [&'static str];

        /// Commits whatever is nested. Where the driver counts down by sending a roll-back all the
        /// same, there is something to roll back afterwards.
        const COMMIT: &'static str;

        /// Ends the connection after a COMMIT that failed, where what the database says of the
        /// transaction afterwards is not to be relied on.
        const AFTER_FAILED_COMMIT: Option<&'static str>;

        /// Runs [`Sql::lookup`].
        fn lookup(
            conn: &mut Self::Connection,
            sending: Sending,
            values: &[Value<'_>],
        ) -> impl Future<Output = Result<Option<Row>, sqlx::Error>> + Send {
            Self::fetch_record(conn, sending, Self::SQL.lookup, values)
        }

        /// Runs [`Sql::claim`].
        fn claim(
            conn: &mut Self::Connection,
            sending: Sending,
            values: &[Value<'_>],
        ) -> impl Future<Output = Result<Option<Row>, sqlx::Error>> + Send {
            Self::fetch_record(conn, sending, Self::SQL.claim, values)
        }

        /// Ends what was begun without committing it, and what goes with it. `None` where unwinding
        /// does that.
        const UNDO: Option<&'static str>;

        /// Begins a transaction that can be proven to be ours: the token is in hexadecimal digits,
        /// and part of the savepoint's name.
        fn begin(token: &str, savepoint: &str, claimed: bool) -> SqlStr;

        /// Proves that the transaction is ours and not aborted, ends what was left nested in it, and
        /// takes out what only the beginning had put there.
        fn proof(_token: &str, savepoint: &str, _claimed: bool) -> String {
            format!("RELEASE SAVEPOINT {savepoint}; SAVEPOINT {savepoint}")
        }

        /// Whether the last statement failed, and may have rolled the whole transaction back by
        /// doing so: to be asked first.
        fn has_failed(
            conn: &mut Self::Connection,
        ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send {
            let _ = conn;
            ready(Ok(false))
        }

        /// Whether a transaction that is not there any more was committed. Ends whatever is there
        /// instead.
        fn was_committed(
            conn: &mut Self::Connection,
            token: &str,
        ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send {
            let _ = (conn, token);
            ready(Ok(true))
        }

        /// Runs statements about a savepoint, and makes sure that what was read is their answer:
        /// with the nonce in it, where the driver can lose its place.
        fn ask(
            conn: &mut Self::Connection,
            sql: String,
            savepoint: &str,
            nonce: String,
        ) -> impl Future<Output = Result<(), sqlx::Error>> + Send {
            let _ = (savepoint, nonce);
            // Made of hexadecimal digits and words of ours.
            Self::simple(conn, AssertSqlSafe(sql).into_sql_str())
        }

        /// Makes sure that a statement of its own is done: that the answer read was its own, and that
        /// it was not in some transaction.
        fn confirm(
            conn: &mut Self::Connection,
        ) -> impl Future<Output = Result<(), sqlx::Error>> + Send {
            let _ = conn;
            ready(Ok(()))
        }

        /// Whether the database says that there is no such savepoint, or no transaction at all.
        fn lacks_savepoint(error: &dyn sqlx::error::DatabaseError) -> bool;

        /// What an error of the database means.
        fn classify(error: &dyn sqlx::error::DatabaseError) -> ErrorClass;

        /// Whether a COMMIT that ended with this error of the database certainly did not happen.
        fn certainly_not_committed(error: &dyn sqlx::error::DatabaseError) -> bool;

        /// Whether a connection that goes back to its pool is outside of all transactions. Asked of
        /// the database, as the driver may not know.
        fn is_clean(
            conn: &mut Self::Connection,
        ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

        /// What is to be known of the database at start.
        fn findings(
            pool: &sqlx::Pool<Self>,
            sending: Sending,
        ) -> impl Future<Output = Result<Vec<Finding>, sqlx::Error>> + Send;

        /// The migrations, with a table of their own.
        fn migrator() -> Migrator;

        /// Runs them.
        fn run_migrations(
            pool: &sqlx::Pool<Self>,
        ) -> impl Future<Output = Result<(), MigrateError>> + Send
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
