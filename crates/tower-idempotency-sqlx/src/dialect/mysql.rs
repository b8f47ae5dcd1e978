//! MySQL 8.0.16, MariaDB 10.6, and later.

use std::borrow::Cow;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::mysql::{MySqlArguments, MySqlDatabaseError, MySqlRow};
use sqlx::{AssertSqlSafe, Database, MySql, MySqlConnection, Row as _, SqlSafeStr, SqlStr};
use tokio::time::{sleep, timeout};
use tower_idempotency_core::ClaimToken;

use super::sealed::DialectImpl;
use super::{ErrorClass, Sql};
use crate::check::Finding;
use crate::driver::{Driver, Sending, Value, Written};
use crate::row::Row;
use crate::sent::composed;

impl_driver!(MySql, Placed, MySqlArguments, MySqlRow, Vec<u8>);

/// A statement whose placeholders have no numbers, and the numbers of their parameters.
#[derive(Debug, Clone, Copy)]
pub struct Placed(&'static str, &'static [usize]);

impl Written for Placed {
    fn sql(self) -> &'static str {
        self.0
    }

    fn arrange<'v, 'a>(self, values: &'v [Value<'a>]) -> Cow<'v, [Value<'a>]> {
        let placed = self.1.iter().map(|number| match values[number - 1] {
            // As bytes, which the server does not convert from one character set to another.
            Value::Text(text) => Value::Bytes(text.as_bytes()),
            Value::MaybeText(text) => Value::MaybeBytes(text.map(str::as_bytes)),
            value => value,
        });
        placed.collect()
    }
}

/// The server's clock in UTC, whatever the session's time zone: the same within one statement.
macro_rules! now {
    () => {
        "UTC_TIMESTAMP(3)"
    };
}

/// So many milliseconds from now; the parameter is the next one.
macro_rules! from_now {
    () => {
        concat!(now!(), " + INTERVAL ? / 1000 SECOND")
    };
}

macro_rules! columns {
    () => {
        concat!(
            "IF(@@autocommit = 1, state, 'no autocommit'), claim_token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', claimed_at) DIV 1000, \
             stale_at <= ",
            now!(),
            ", fingerprint, status, kept, headers, body, resource_ref, coalesce(expires_at <= ",
            now!(),
            ", FALSE)"
        )
    };
}

macro_rules! id {
    () => {
        "owner = ? AND operation = ? AND `key` = ?"
    };
}

macro_rules! held {
    () => {
        concat!(id!(), " AND claim_token = ? AND state = 'claimed'")
    };
}

macro_rules! completing {
    () => {
        concat!(
            "UPDATE tower_idempotency_record SET state = 'completed', status = ?, kept = ?, \
             headers = ?, body = ?, resource_ref = ?, completed_at = ",
            now!(),
            ", expires_at = ",
            from_now!(),
            " WHERE ",
            held!()
        )
    };
}

/// A claim that lost: another row has its key.
const DUPLICATE: u16 = 1062;
const NO_SAVEPOINT: u16 = 1305;

/// Instead of a state: what was read may be long over, in a snapshot that stays.
const NO_AUTOCOMMIT: &str = "no autocommit";

/// How many errors of queued roll-backs are passed over.
const MAX_QUEUED: usize = 64;

impl DialectImpl for MySql {
    const SQL: &'static Sql<Placed> = &Sql {
        lookup: Placed(
            concat!(
                "SELECT ",
                columns!(),
                " FROM tower_idempotency_record WHERE ",
                id!()
            ),
            &[1, 2, 3],
        ),
        // An insert waits for whoever holds the row: on MariaDB for a second, on MySQL for as long
        // as its setting says. Without autocommit it would look done and not be.
        claim: Placed(
            concat!(
                "/*M!100600 SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ \
                 INSERT INTO tower_idempotency_record \
                     (owner, operation, `key`, state, claim_token, fingerprint, claimed_at, stale_at) \
                 SELECT ?, ?, ?, 'claimed', ?, ?, ",
                now!(),
                ", ",
                from_now!(),
                " FROM DUAL WHERE @@autocommit = 1"
            ),
            &[1, 2, 3, 4, 5, 6],
        ),
        // Whoever holds the row is completing or replacing it: skipping it is no loss.
        replace: Placed(
            concat!(
                "UPDATE (\
                     SELECT owner, operation, `key` FROM tower_idempotency_record WHERE ",
                id!(),
                " AND claim_token = ? LIMIT 1 FOR UPDATE SKIP LOCKED\
                 ) AS seen STRAIGHT_JOIN tower_idempotency_record AS r \
                     ON r.owner = seen.owner AND r.operation = seen.operation AND r.`key` = seen.`key` \
                 SET r.state = 'claimed', r.claim_token = ?, r.fingerprint = ?, r.claimed_at = ",
                now!(),
                ", r.stale_at = ",
                from_now!(),
                ", r.status = NULL, r.kept = NULL, r.headers = NULL, r.body = NULL, \
                 r.resource_ref = NULL, r.completed_at = NULL, r.expires_at = NULL \
                 WHERE r.claim_token = ? AND (r.state = 'claimed' AND r.stale_at <= ",
                now!(),
                " OR r.state = 'completed' AND r.expires_at <= ",
                now!(),
                ")"
            ),
            &[1, 2, 3, 7, 4, 5, 6, 7],
        ),
        complete: Placed(completing!(), &[5, 6, 7, 8, 9, 10, 1, 2, 3, 4]),
        complete_alone: Placed(completing!(), &[5, 6, 7, 8, 9, 10, 1, 2, 3, 4]),
        free: Placed(
            concat!("DELETE FROM tower_idempotency_record WHERE ", held!()),
            &[1, 2, 3, 4],
        ),
        renew: Placed(
            concat!(
                "UPDATE tower_idempotency_record SET stale_at = ",
                from_now!(),
                " WHERE ",
                held!()
            ),
            &[5, 1, 2, 3, 4],
        ),
        mark_unknown: Placed(
            concat!(
                "UPDATE tower_idempotency_record SET state = 'completed', status = ?, \
                 kept = FALSE, completed_at = ",
                now!(),
                " WHERE ",
                held!()
            ),
            &[5, 1, 2, 3, 4],
        ),
        // By its own index: that of the primary key would lock all records of the operation.
        tombstone: Placed(
            "UPDATE tower_idempotency_record FORCE INDEX (record_resource) \
             SET state = 'tombstone', claim_token = NULL, fingerprint = NULL, status = NULL, \
                 kept = NULL, headers = NULL, body = NULL, expires_at = NULL \
             WHERE owner = ? AND operation = ? AND resource_ref = ? AND state = 'completed'",
            &[1, 2, 3],
        ),
        erase_owner: Placed("DELETE FROM tower_idempotency_record WHERE owner = ?", &[1]),
        // The conditions are repeated outside: a row may have been replaced since it was found.
        purge_expired: Placed(
            concat!(
                "DELETE r FROM (\
                     SELECT owner, operation, `key` FROM tower_idempotency_record \
                     FORCE INDEX (record_expires) WHERE expires_at <= ",
                now!(),
                " AND state = 'completed' ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED\
                 ) AS doomed STRAIGHT_JOIN tower_idempotency_record AS r \
                     ON r.owner = doomed.owner AND r.operation = doomed.operation \
                     AND r.`key` = doomed.`key` \
                 WHERE r.state = 'completed' AND r.expires_at <= ",
                now!()
            ),
            &[1],
        ),
        // Found without locks: there is no index for them, and a scan would lock all that it sees.
        purge_stale: Placed(
            concat!(
                "DELETE r FROM (\
                     SELECT owner, operation, `key`, claim_token FROM tower_idempotency_record \
                     WHERE state = 'claimed' AND stale_at <= ",
                now!(),
                " - INTERVAL ? / 1000 SECOND LIMIT ?\
                 ) AS doomed STRAIGHT_JOIN tower_idempotency_record AS r \
                     ON r.owner = doomed.owner AND r.operation = doomed.operation \
                     AND r.`key` = doomed.`key` \
                 WHERE r.claim_token = doomed.claim_token AND r.state = 'claimed' \
                     AND r.stale_at <= ",
                now!(),
                " - INTERVAL ? / 1000 SECOND"
            ),
            &[2, 1, 2],
        ),
    };
    const SINGLE_WRITER: bool = false;
    const LOOKS_FIRST: bool = true;
    const COMPLETION_PROVES: bool = false;
    // The driver counts down whatever the server answers.
    const BEFORE_UNWINDING: &'static [&'static str] = &[];
    const COMMIT: &'static str = "COMMIT; SET autocommit = 1";
    // In a cluster the transaction may have failed on another node.
    const AFTER_FAILED_COMMIT: Option<&'static str> = Some("ROLLBACK RELEASE");
    const UNDO: Option<&'static str> = Some("ROLLBACK; SET autocommit = 1");

    async fn lookup(
        conn: &mut MySqlConnection,
        sending: Sending,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, sqlx::Error> {
        match Self::fetch_record(conn, sending, Self::SQL.lookup, values).await? {
            Some(row) if row.state == NO_AUTOCOMMIT => Err(no_autocommit()),
            row => Ok(row),
        }
    }

    async fn claim(
        conn: &mut MySqlConnection,
        sending: Sending,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, sqlx::Error> {
        match Self::execute(conn, sending, Self::SQL.claim, values).await {
            Ok(1) => Ok(Some(Row::acquired())),
            Ok(_) => Err(no_autocommit()),
            // Its text has the key in it, and goes no further.
            Err(sqlx::Error::Database(error)) if number(error.as_ref()) == Some(DUPLICATE) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// One message, so one round trip. Rolls back first: on a connection that was given back inside
    /// of a transaction, the start of another would commit that.
    ///
    /// Without autocommit: a deadlock rolls the whole transaction back, and what a handler writes
    /// after it would be committed one by one. And with a row that is there afterwards only if
    /// somebody commits before the proof: what was rolled back by the server is told from what was
    /// committed by hand.
    fn begin(token: &str, savepoint: &str, claimed: bool) -> SqlStr {
        let mut sql =
            format!("ROLLBACK; SET autocommit = 0; START TRANSACTION; SAVEPOINT {savepoint}");
        if claimed {
            sql += &format!("; INSERT INTO tower_idempotency_begun (token) VALUES (x'{token}')");
        }
        AssertSqlSafe(sql).into_sql_str()
    }

    fn proof(token: &str, savepoint: &str, claimed: bool) -> String {
        let mut sql = format!("RELEASE SAVEPOINT {savepoint}; SAVEPOINT {savepoint}");
        if claimed {
            sql += &format!("; DELETE FROM tower_idempotency_begun WHERE token = x'{token}'");
        }
        sql
    }

    async fn has_failed(conn: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
        let mut earlier = 0;
        let row = loop {
            let errors = sqlx::raw_sql("SHOW ERRORS LIMIT 1");
            match errors.fetch_optional(&mut *conn).await {
                // That of a queued roll-back, to a savepoint that is gone too.
                Err(sqlx::Error::Database(_)) if earlier < MAX_QUEUED => earlier += 1,
                row => break row?,
            }
        };
        let number: Option<u64> = row.map(|row| row.try_get_unchecked(1)).transpose()?;
        // A deadlock; a row that changed after the snapshot; a lock's time-out, which rolls all back
        // where the server is told so.
        let fatal = [1213, 1020, 1205, NO_SAVEPOINT.into()];
        Ok(number.is_some_and(|number| fatal.contains(&number)))
    }

    async fn was_committed(conn: &mut MySqlConnection, token: &str) -> Result<bool, sqlx::Error> {
        let sql = format!(
            "ROLLBACK; SET autocommit = 1; \
             DELETE FROM tower_idempotency_begun WHERE token = x'{token}'"
        );
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn ask(
        conn: &mut MySqlConnection,
        sql: String,
        savepoint: &str,
        nonce: String,
    ) -> Result<(), sqlx::Error> {
        let sql = format!("{sql}; SELECT '{nonce}'");
        let mut earlier = 0;
        loop {
            match answer(conn, &sql, &nonce).await {
                // The error of a roll-back that the driver had queued, of a savepoint of its own:
                // ours has not been sent.
                Err(sqlx::Error::Database(error))
                    if number(error.as_ref()) == Some(NO_SAVEPOINT)
                        && !error.message().contains(savepoint)
                        && earlier < MAX_QUEUED =>
                {
                    earlier += 1;
                }
                asked => return asked.map(drop),
            }
        }
    }

    async fn confirm(conn: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        let nonce = u128::from_ne_bytes(*ClaimToken::random().as_bytes());
        let nonce = format!("{nonce:x}");
        let sql = format!("SELECT '{nonce}', @@autocommit");
        let row = answer(conn, &sql, &nonce).await?;
        if row.try_get_unchecked::<bool, _>(1)? {
            Ok(())
        } else {
            Err(no_autocommit())
        }
    }

    fn lacks_savepoint(error: &dyn sqlx::error::DatabaseError) -> bool {
        number(error) == Some(NO_SAVEPOINT)
    }

    fn classify(error: &dyn sqlx::error::DatabaseError) -> ErrorClass {
        match number(error) {
            // A time-out of a lock, or no wait for it.
            Some(1205 | 3572) => ErrorClass::Locked,
            // A deadlock, on Galera also a conflict with another node; a row that changed after
            // the snapshot (MariaDB); a write conflict (TiDB).
            Some(1213 | 1020 | 9007 | 8028) => ErrorClass::Conflict,
            Some(1146) => ErrorClass::NoTable,
            // Shutting down; killed; idle for too long.
            Some(1053 | 1927 | 4031) => ErrorClass::Disconnected,
            // Too many connections; out of memory; network; interrupted; statement time-outs;
            // read-only; a node of Galera's that is cut off. Not a full disk, where a retry alone
            // does not help.
            Some(
                1037
                | 1038
                | 1040
                | 1041
                | 1047
                | 1129
                | 1152
                | 1158..=1161
                | 1203
                | 1226
                | 1290
                | 1317
                | 1792
                | 1836
                | 1969
                | 3024
                | 3168,
            ) => ErrorClass::Unavailable,
            _ => ErrorClass::Other,
        }
    }

    /// The conflicts, which are rolled back by the server. All else at COMMIT is in doubt.
    fn certainly_not_committed(error: &dyn sqlx::error::DatabaseError) -> bool {
        matches!(number(error), Some(1213 | 9007 | 8028))
    }

    /// The server does not tell, and a roll-back outside of a transaction does nothing.
    async fn is_clean(conn: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
        let asking = Self::ask(
            conn,
            "ROLLBACK; SET autocommit = 1".into(),
            "",
            "clean".into(),
        );
        Ok(timeout(Duration::from_secs(5), asking)
            .await
            .is_ok_and(|asked| asked.is_ok()))
    }

    async fn findings(pool: &sqlx::Pool<Self>, _: Sending) -> Result<Vec<Finding>, sqlx::Error> {
        crate::check::mysql::findings(pool).await
    }

    /// Each migration can be repeated from its beginning: tables are made outside of
    /// transactions here.
    fn migrator() -> Migrator {
        let record = include_str!("../../migrations/mysql/0001_record.sql");
        let mut migrator = super::migrator(&[(1, "record", record)]);
        migrator.dangerous_set_table_name("tower_idempotency_migration");
        migrator
    }

    async fn run_migrations(pool: &sqlx::Pool<Self>) -> Result<(), MigrateError>
    where
        Self: Database,
    {
        const ABANDONED: &str = "DELETE FROM tower_idempotency_migration WHERE success = FALSE";
        let mut attempt = 0;
        loop {
            match Self::migrator().run(pool).await {
                // sqlx's lock is none on MariaDB, nor across the nodes of a cluster.
                Err(
                    error @ (MigrateError::Execute(_)
                    | MigrateError::ExecuteMigration(..)
                    | MigrateError::Dirty(_)),
                ) if attempt < 10 => {
                    attempt += 1;
                    if attempt > 5 && matches!(error, MigrateError::Dirty(_)) {
                        // Some process died over it.
                        sqlx::raw_sql(ABANDONED).execute(pool).await?;
                    }
                    sleep(Duration::from_millis(10 << attempt.min(5))).await;
                }
                ended => return ended,
            }
        }
    }
}

/// The last row of the answer, which begins with the nonce.
async fn answer(
    conn: &mut MySqlConnection,
    sql: &str,
    nonce: &str,
) -> Result<MySqlRow, sqlx::Error> {
    let sql = composed(AssertSqlSafe(sql.to_owned()).into_sql_str());
    let last = sqlx::raw_sql(sql).fetch_all(conn).await?.pop();
    let row = last.ok_or(sqlx::Error::RowNotFound)?;
    if row.try_get_unchecked::<Vec<u8>, _>(0)? == nonce.as_bytes() {
        Ok(row)
    } else {
        Err(sqlx::Error::Protocol(
            "an answer is another statement's".into(),
        ))
    }
}

/// Not the database's word, so that the connection is closed.
fn no_autocommit() -> sqlx::Error {
    sqlx::Error::Protocol("autocommit is off on this connection: switch it on".into())
}

fn number(error: &dyn sqlx::error::DatabaseError) -> Option<u16> {
    error
        .try_downcast_ref::<MySqlDatabaseError>()
        .map(MySqlDatabaseError::number)
}
