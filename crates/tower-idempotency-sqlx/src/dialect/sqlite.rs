//! SQLite 3.37 and later, as it is bundled with sqlx.

use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Database, SqlSafeStr, SqlStr, Sqlite, SqliteConnection};

use super::sealed::DialectImpl;
use super::{ErrorClass, Sql};

use crate::check::Finding;
use crate::driver::Sending;

impl_driver!(Sqlite, &'static str, SqliteArguments, SqliteRow, String);

/// Milliseconds since 1970. The same within one statement, and not NULL on old versions, as
/// `unixepoch('subsec')` is before 3.42.
macro_rules! now {
    () => {
        "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    };
}

macro_rules! columns {
    () => {
        concat!(
            "state, claim_token, claimed_at, stale_at <= ",
            now!(),
            ", fingerprint, status, kept, headers, body, resource_ref, \
             coalesce(expires_at <= ",
            now!(),
            ", 0)"
        )
    };
}

macro_rules! held {
    () => {
        "owner = ?1 AND operation = ?2 AND key = ?3 AND claim_token = ?4 AND state = 'claimed'"
    };
}

macro_rules! completing {
    () => {
        concat!(
            "UPDATE tower_idempotency_record SET state = 'completed', status = ?5, kept = ?6, \
             headers = ?7, body = ?8, resource_ref = ?9, completed_at = ",
            now!(),
            ", expires_at = ",
            now!(),
            " + ?10 WHERE ",
            held!()
        )
    };
}

impl DialectImpl for Sqlite {
    const SQL: &'static Sql<&'static str> = &Sql {
        lookup: concat!(
            "SELECT ",
            columns!(),
            " FROM tower_idempotency_record WHERE owner = ?1 AND operation = ?2 AND key = ?3"
        ),
        claim: concat!(
            "INSERT INTO tower_idempotency_record \
                 (owner, operation, key, state, claim_token, claimed_at, stale_at, fingerprint) \
             VALUES (?1, ?2, ?3, 'claimed', ?4, ",
            now!(),
            ", ",
            now!(),
            " + ?6, ?5) \
             ON CONFLICT (owner, operation, key) DO NOTHING \
             RETURNING 'acquired', NULL, claimed_at, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0"
        ),
        replace: concat!(
            "UPDATE tower_idempotency_record SET state = 'claimed', claim_token = ?4, claimed_at = ",
            now!(),
            ", stale_at = ",
            now!(),
            " + ?6, fingerprint = ?5, status = NULL, kept = NULL, headers = NULL, body = NULL, \
             resource_ref = NULL, completed_at = NULL, expires_at = NULL \
             WHERE owner = ?1 AND operation = ?2 AND key = ?3 AND claim_token = ?7 \
                 AND (state = 'claimed' AND stale_at <= ",
            now!(),
            " OR state = 'completed' AND expires_at <= ",
            now!(),
            ")"
        ),
        complete: completing!(),
        complete_alone: completing!(),
        free: concat!("DELETE FROM tower_idempotency_record WHERE ", held!()),
        renew: concat!(
            "UPDATE tower_idempotency_record SET stale_at = ",
            now!(),
            " + ?5 WHERE ",
            held!()
        ),
        mark_unknown: concat!(
            "UPDATE tower_idempotency_record SET state = 'completed', status = ?5, kept = 0, \
             completed_at = ",
            now!(),
            " WHERE ",
            held!()
        ),
        tombstone: "UPDATE tower_idempotency_record SET state = 'tombstone', claim_token = NULL, \
             fingerprint = NULL, status = NULL, kept = NULL, headers = NULL, body = NULL, \
             expires_at = NULL \
             WHERE owner = ?1 AND operation = ?2 AND resource_ref = ?3 AND state = 'completed'",
        erase_owner: "DELETE FROM tower_idempotency_record WHERE owner = ?1",
        // One statement is one write transaction: no row can be replaced in between.
        purge_expired: concat!(
            "DELETE FROM tower_idempotency_record WHERE rowid IN (\
                 SELECT rowid FROM tower_idempotency_record \
                 WHERE expires_at <= ",
            now!(),
            " AND state = 'completed' ORDER BY expires_at LIMIT ?1)"
        ),
        purge_stale: concat!(
            "DELETE FROM tower_idempotency_record WHERE rowid IN (\
                 SELECT rowid FROM tower_idempotency_record \
                 WHERE state = 'claimed' AND stale_at <= ",
            now!(),
            " - ?2 LIMIT ?1)"
        ),
    };
    const SINGLE_WRITER: bool = true;
    const LOOKS_FIRST: bool = true;
    const COMPLETION_PROVES: bool = false;
    // The driver counts down only where the roll-back succeeds, so there must be something to roll
    // back on every level.
    const BEFORE_UNWINDING: &'static [&'static str] = &[
        "ROLLBACK",
        "BEGIN; SAVEPOINT _sqlx_savepoint_1; SAVEPOINT _sqlx_savepoint_2; SAVEPOINT _sqlx_savepoint_3; \
         SAVEPOINT _sqlx_savepoint_4; SAVEPOINT _sqlx_savepoint_5; SAVEPOINT _sqlx_savepoint_6; \
         SAVEPOINT _sqlx_savepoint_7; SAVEPOINT _sqlx_savepoint_8; SAVEPOINT _sqlx_savepoint_9; \
         SAVEPOINT _sqlx_savepoint_10; SAVEPOINT _sqlx_savepoint_11; SAVEPOINT _sqlx_savepoint_12; \
         SAVEPOINT _sqlx_savepoint_13; SAVEPOINT _sqlx_savepoint_14; SAVEPOINT _sqlx_savepoint_15",
    ];

    const COMMIT: &'static str = "COMMIT";
    const AFTER_FAILED_COMMIT: Option<&'static str> = None;
    const UNDO: Option<&'static str> = None;

    /// IMMEDIATE: a transaction that reads first and then writes would fail at once, whatever the
    /// busy time-out.
    fn begin(_: &str, savepoint: &str, _: bool) -> SqlStr {
        AssertSqlSafe(format!("BEGIN IMMEDIATE; SAVEPOINT {savepoint}")).into_sql_str()
    }

    fn lacks_savepoint(error: &dyn sqlx::error::DatabaseError) -> bool {
        // SQLITE_ERROR: nothing else can be wrong with the statement.
        primary_code(error) == Some(1)
    }

    fn classify(error: &dyn sqlx::error::DatabaseError) -> ErrorClass {
        match primary_code(error) {
            // SQLITE_BUSY, SQLITE_LOCKED.
            Some(5 | 6) => ErrorClass::Unavailable,
            // SQLITE_ERROR says nothing more; a missing table is the one that users meet.
            Some(1) if error.message().starts_with("no such table") => ErrorClass::NoTable,
            _ => ErrorClass::Other,
        }
    }

    /// Busy, a deferred constraint, or a full disk, on which its last page was not written. After
    /// another I/O error the commit may be in the log.
    fn certainly_not_committed(error: &dyn sqlx::error::DatabaseError) -> bool {
        matches!(primary_code(error), Some(5 | 6 | 13 | 19))
    }

    /// Inside of a transaction, there can be no other.
    async fn is_clean(conn: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        let begun = sqlx::raw_sql("BEGIN; ROLLBACK").execute(conn).await;
        Ok(begun.is_ok())
    }

    async fn findings(pool: &sqlx::Pool<Self>, _: Sending) -> Result<Vec<Finding>, sqlx::Error> {
        crate::check::sqlite::findings(pool).await
    }

    fn migrator() -> Migrator {
        let record = include_str!("../../migrations/sqlite/0001_record.sql");
        let mut migrator = super::migrator(&[(1, "record", record)]);
        migrator.dangerous_set_table_name("tower_idempotency_migration");
        migrator
    }

    async fn run_migrations(pool: &sqlx::Pool<Self>) -> Result<(), MigrateError>
    where
        Self: Database,
    {
        // sqlx takes no lock on SQLite: of processes that start at once, one makes the table, and
        // the others fail and then find it made.
        for pause in [10, 50, 250] {
            match Self::migrator().run(pool).await {
                Err(MigrateError::Execute(_) | MigrateError::ExecuteMigration(..)) => {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                ended => return ended,
            }
        }
        Self::migrator().run(pool).await
    }
}

/// The low byte of an extended result code.
fn primary_code(error: &dyn sqlx::error::DatabaseError) -> Option<i32> {
    error.code()?.parse::<i32>().ok().map(|code| code & 0xff)
}
