//! PostgreSQL 13 and later.

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgArguments, PgDatabaseError, PgRow, PgSeverity};
use sqlx::{AssertSqlSafe, Database, PgConnection, Postgres, Row as _, SqlSafeStr, SqlStr};
use tower_idempotency_core::{Claim, ClaimToken};

use super::sealed::DialectImpl;
use super::{ErrorClass, Joining, Sql};
use crate::check::Finding;
use crate::driver::Sending;
use crate::queries::millis;
use crate::row::Row;

impl_driver!(Postgres, &'static str, PgArguments, PgRow, String);

macro_rules! columns {
    () => {
        "state, claim_token, (extract(epoch FROM claimed_at) * 1000)::bigint, stale_at <= now(), \
         fingerprint, status::bigint, kept, headers, body, resource_ref, \
         coalesce(expires_at <= now(), false)"
    };
}

macro_rules! held {
    () => {
        "owner = $1 AND operation = $2 AND key = $3 AND claim_token = $4 AND state = 'claimed'"
    };
}

macro_rules! completing {
    () => {
        "UPDATE tower_idempotency.record SET state = 'completed', status = $5, kept = $6, \
         headers = $7, body = $8, resource_ref = $9, completed_at = clock_timestamp(), \
         expires_at = clock_timestamp() + $10 * interval '1 millisecond' WHERE "
    };
}

/// Names for them.
macro_rules! names {
    () => {
        "state, token, claimed_at, stale, fingerprint, status, kept, headers, body, resource_ref, \
         expired"
    };
}

/// What the claim returns of a record that it made.
macro_rules! acquired {
    () => {
        "'acquired', NULL::bytea, (extract(epoch FROM claimed_at) * 1000)::bigint, false, \
         NULL::text, NULL::bigint, NULL::boolean, NULL::bytea, NULL::bytea, NULL::text, false"
    };
}

/// Also lets the claim's commit not wait for the disk.
macro_rules! relaxed {
    () => {
        ", set_config('synchronous_commit', 'off', true)"
    };
}

/// How long a claim waits for somebody else's uncommitted work. The setting ends with the
/// statement's transaction, as do further ones.
macro_rules! patience {
    ($time:literal, $settings:expr) => {
        concat!(
            "WITH patience AS MATERIALIZED (\
                 SELECT set_config('lock_timeout', '",
            $time,
            "', true) AS lock_timeout",
            $settings,
            ")"
        )
    };
}

/// What is there already decides, and costs no more than to read it: nothing is inserted then. Not
/// where transactions are serializable: two claims of new keys that have read one page of the index
/// would fail each other. There the insert that finds a row returns nothing.
macro_rules! unless_serializable {
    () => {
        "current_setting('transaction_isolation') <> 'serializable'"
    };
}

/// One statement for the common cases. Where the insert lost to one that this snapshot does not
/// see, there is no row at all.
macro_rules! claim {
    ($settings:expr) => {
        concat!(
            patience!("200ms", $settings),
            ", seen AS MATERIALIZED (SELECT ",
            columns!(),
            " FROM tower_idempotency.record \
                 WHERE owner = $1 AND operation = $2 AND key = $3 AND ",
            unless_serializable!(),
            "), claimed AS (\
                 INSERT INTO tower_idempotency.record \
                     (owner, operation, key, state, claim_token, claimed_at, stale_at, fingerprint) \
                 SELECT $1, $2, $3, 'claimed', $4, now(), now() + $6 * interval '1 millisecond', $5 \
                 FROM patience WHERE NOT EXISTS (SELECT FROM seen) AND lock_timeout IS NOT NULL \
                 ON CONFLICT ON CONSTRAINT record_pkey DO NOTHING \
                 RETURNING claimed_at\
             ) \
             SELECT ",
            acquired!(),
            " FROM claimed UNION ALL SELECT * FROM seen"
        )
    };
}

/// How long a result is, known without reading it.
macro_rules! bytes {
    () => {
        "coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0)"
    };
}

/// What many may wait for: 128 KiB of results in all, the smallest first. A larger one is
/// left out, and its claim then looks for it alone: nobody waits until the bodies of all who share a
/// statement have arrived on one connection.
macro_rules! found {
    () => {
        concat!(
            "(SELECT *, sum(",
            bytes!(),
            ") OVER (ORDER BY ",
            bytes!(),
            " ROWS UNBOUNDED PRECEDING) AS bytes FROM asked WHERE state IS NOT NULL) AS found \
             WHERE bytes <= 131072"
        )
    };
}

/// The same for many, but for large results: each row has the arriving claim's token behind the columns. The subquery is
/// fenced, so that every record is looked up by its key, whatever the planner makes of the array.
macro_rules! claim_many {
    ($settings:expr) => {
        concat!(
            // Nobody waits long for a key of somebody else's: each then goes alone.
            patience!("20ms", $settings),
            ", asked AS MATERIALIZED (\
                 SELECT arriving.*, seen.* FROM unnest(\
                     $1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::bigint[]\
                 ) AS arriving \
                     (its_owner, its_operation, its_key, its_token, its_fingerprint, stale_after) \
                 LEFT JOIN LATERAL (SELECT ",
            columns!(),
            " FROM tower_idempotency.record \
                     WHERE owner = its_owner AND operation = its_operation AND key = its_key AND ",
            unless_serializable!(),
            " OFFSET 0) AS seen (",
            names!(),
            ") ON true\
             ), claimed AS (\
                 INSERT INTO tower_idempotency.record \
                     (owner, operation, key, state, claim_token, claimed_at, stale_at, fingerprint) \
                 SELECT its_owner, its_operation, its_key, 'claimed', its_token, now(), \
                     now() + stale_after * interval '1 millisecond', its_fingerprint \
                 FROM asked, patience WHERE state IS NULL AND lock_timeout IS NOT NULL \
                 ON CONFLICT ON CONSTRAINT record_pkey DO NOTHING \
                 RETURNING claim_token, claimed_at\
             ) \
             SELECT ",
            acquired!(),
            ", claim_token FROM claimed UNION ALL SELECT ",
            names!(),
            ", its_token FROM ",
            found!()
        )
    };
}

/// By place, which a row keeps while it is locked: what the planner makes of the limit does not matter
/// then. Joined by key, it might read the whole table for one batch. Where the table is partitioned,
/// one place is in each part; the subquery is hashed, and `IS TRUE` keeps it from becoming a join. The
/// conditions are repeated outside: a row may have been replaced since it was found.
macro_rules! purge {
    ($doomed:literal, $order:literal) => {
        concat!(
            "WITH doomed AS MATERIALIZED (\
                 SELECT tableoid AS part, ctid AS place FROM tower_idempotency.record WHERE ",
            $doomed,
            $order,
            " LIMIT $1 FOR UPDATE SKIP LOCKED\
             ) \
             DELETE FROM tower_idempotency.record WHERE ctid = ANY (ARRAY(SELECT place FROM doomed)) \
                 AND ((tableoid, ctid) IN (SELECT part, place FROM doomed)) IS TRUE AND ",
            $doomed
        )
    };
}

impl DialectImpl for Postgres {
    const SQL: &'static Sql<&'static str> = &Sql {
        lookup: concat!(
            "SELECT ",
            columns!(),
            " FROM tower_idempotency.record WHERE owner = $1 AND operation = $2 AND key = $3"
        ),
        claim: claim!(""),
        // Whoever holds the row is completing or replacing it: skipping it is no loss.
        replace: "WITH seen AS MATERIALIZED (\
                 SELECT owner, operation, key FROM tower_idempotency.record \
                 WHERE owner = $1 AND operation = $2 AND key = $3 AND claim_token = $7 \
                 FOR UPDATE SKIP LOCKED\
             ) \
             UPDATE tower_idempotency.record AS r SET state = 'claimed', claim_token = $4, \
                 claimed_at = now(), stale_at = now() + $6 * interval '1 millisecond', \
                 fingerprint = $5, status = NULL, kept = NULL, headers = NULL, body = NULL, \
                 resource_ref = NULL, completed_at = NULL, expires_at = NULL \
             FROM seen \
             WHERE r.owner = seen.owner AND r.operation = seen.operation AND r.key = seen.key \
                 AND r.claim_token = $7 \
                 AND (r.state = 'claimed' AND r.stale_at <= now() \
                     OR r.state = 'completed' AND r.expires_at <= now())",
        // The setting is there in the transaction that was begun with this token, and in no other.
        complete: concat!(
            completing!(),
            held!(),
            " AND current_setting('tower_idempotency.claim', true) = encode($4, 'hex')"
        ),
        complete_alone: concat!(completing!(), held!()),
        free: concat!("DELETE FROM tower_idempotency.record WHERE ", held!()),
        renew: concat!(
            "UPDATE tower_idempotency.record SET stale_at = now() + $5 * interval '1 millisecond' \
             WHERE ",
            held!()
        ),
        mark_unknown: concat!(
            "UPDATE tower_idempotency.record SET state = 'completed', status = $5, kept = false, \
             completed_at = now() WHERE ",
            held!()
        ),
        tombstone: "UPDATE tower_idempotency.record SET state = 'tombstone', claim_token = NULL, \
             fingerprint = NULL, status = NULL, kept = NULL, headers = NULL, body = NULL, \
             expires_at = NULL \
             WHERE owner = $1 AND operation = $2 AND resource_ref = $3 AND state = 'completed'",
        erase_owner: "DELETE FROM tower_idempotency.record WHERE owner = $1",
        purge_expired: purge!(
            "expires_at <= now() AND state = 'completed'",
            " ORDER BY expires_at"
        ),
        purge_stale: purge!(
            "state = 'claimed' AND stale_at <= now() - $2 * interval '1 millisecond'",
            ""
        ),
    };
    const SINGLE_WRITER: bool = false;
    const LOOKS_FIRST: bool = false;
    const COMPLETION_PROVES: bool = true;
    // The driver counts down whatever the server answers.
    const BEFORE_UNWINDING: &'static [&'static str] = &[];

    const JOINING: Option<&'static Joining<&'static str>> = Some(&Joining {
        many: claim_many!(""),
        relaxed: claim!(relaxed!()),
        many_relaxed: claim_many!(relaxed!()),
    });

    async fn claim_many(
        conn: &mut PgConnection,
        statement: &'static str,
        claims: &[&Claim],
    ) -> Result<Vec<(ClaimToken, Row)>, sqlx::Error> {
        fn column<'a, T>(claims: &[&'a Claim], of: impl Fn(&'a Claim) -> T) -> Vec<T> {
            claims.iter().map(|claim| of(claim)).collect()
        }
        let rows = sqlx::query(crate::sent::statement(statement))
            .bind(column(claims, |claim| claim.id.owner.as_str()))
            .bind(column(claims, |claim| claim.id.operation.as_str()))
            .bind(column(claims, |claim| claim.id.key.as_str()))
            .bind(column(claims, |claim| &claim.token.as_bytes()[..]))
            .bind(column(claims, |claim| claim.fingerprint.as_str()))
            .bind(column(claims, |claim| millis(claim.stale_after)))
            .fetch_all(conn)
            .await?;
        rows.iter()
            .map(|row| {
                let token: &[u8] = row.try_get(11)?;
                let token = token.try_into().map_err(|_| sqlx::Error::RowNotFound)?;
                Ok((ClaimToken::from_bytes(token), read(row)?))
            })
            .collect()
    }

    // The driver then sends its ROLLBACK, with its next ping: it ends the empty transaction, where
    // it would otherwise be a warning in the server's log.
    const COMMIT: &'static str = "COMMIT AND CHAIN";
    const AFTER_FAILED_COMMIT: Option<&'static str> = None;
    const UNDO: Option<&'static str> = None;

    /// One message, so one round trip.
    fn begin(token: &str, savepoint: &str, _: bool) -> SqlStr {
        let sql =
            format!("BEGIN; SET LOCAL tower_idempotency.claim = '{token}'; SAVEPOINT {savepoint}");
        AssertSqlSafe(sql).into_sql_str()
    }

    fn lacks_savepoint(error: &dyn sqlx::error::DatabaseError) -> bool {
        // No such savepoint; no transaction.
        matches!(error.code().as_deref(), Some("3B001" | "25P01"))
    }

    fn classify(error: &dyn sqlx::error::DatabaseError) -> ErrorClass {
        let code = error.code().unwrap_or_default();
        let fatal = error
            .try_downcast_ref::<PgDatabaseError>()
            .is_some_and(|error| !matches!(error.severity(), PgSeverity::Error));
        if fatal {
            // The server has closed the connection, whatever for.
            return ErrorClass::Disconnected;
        }
        match (&*code, code.get(..2)) {
            ("55P03", _) => ErrorClass::Locked,
            ("42P01" | "3F000", _) => ErrorClass::NoTable,
            (_, Some("40")) => ErrorClass::Conflict,
            // The disk is full: a retry alone does not help, as it does for the others of 53.
            ("53100", _) => ErrorClass::Other,
            // 08: connection; 53: resources; 57: operator's intervention; 58: system;
            // 25006: a standby that has become, or still is, read-only.
            ("25006", _) | (_, Some("08" | "53" | "57" | "58")) => ErrorClass::Unavailable,
            _ => ErrorClass::Other,
        }
    }

    /// The server rolls back whatever ends in an ERROR. After FATAL the connection is gone, and the
    /// commit may have happened: while waiting for a synchronous standby, for instance.
    fn certainly_not_committed(error: &dyn sqlx::error::DatabaseError) -> bool {
        let Some(error) = error.try_downcast_ref::<PgDatabaseError>() else {
            return false;
        };
        matches!(error.severity(), PgSeverity::Error)
            && error.code() != "40003"
            && !["08", "57", "58", "XX"].contains(&error.code().get(..2).unwrap_or_default())
    }

    /// One simple query: outside of a transaction, both are the time of its arrival.
    async fn is_clean(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let probe = sqlx::raw_sql("SELECT now() = statement_timestamp()");
        sqlx::Executor::fetch_one(conn, probe).await?.try_get(0)
    }

    async fn findings(
        pool: &sqlx::Pool<Self>,
        sending: Sending,
    ) -> Result<Vec<Finding>, sqlx::Error> {
        crate::check::postgres::findings(pool, sending).await
    }

    fn migrator() -> Migrator {
        let record = include_str!("../../migrations/postgres/0001_record.sql");
        let mut migrator = super::migrator(&[(1, "record", record)]);
        migrator.create_schema("tower_idempotency");
        migrator.dangerous_set_table_name("tower_idempotency.migration");
        migrator
    }

    async fn run_migrations(pool: &sqlx::Pool<Self>) -> Result<(), MigrateError>
    where
        Self: Database,
    {
        Self::migrator().run(pool).await
    }
}
