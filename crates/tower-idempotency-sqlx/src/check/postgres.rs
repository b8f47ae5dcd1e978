//! PostgreSQL.

use sqlx::{Executor as _, PgPool, Row as _};

use super::pooler::{self, Pooler};
use super::{Finding, table};
use crate::driver::Sending;

const TABLE: &str = "SELECT a.attname::text, coalesce(array_position(c.conkey, a.attnum), 0)::bigint \
     FROM pg_attribute AS a \
     LEFT JOIN pg_constraint AS c ON c.conrelid = a.attrelid AND c.contype = 'p' AND c.conname = 'record_pkey' \
     WHERE a.attrelid = to_regclass('tower_idempotency.record') AND a.attnum > 0 AND NOT a.attisdropped \
     ORDER BY 2";

const SERVER: &str = "SELECT current_setting('server_version_num')::bigint, pg_is_in_recovery(), \
     current_setting('default_transaction_isolation'), current_setting('synchronous_commit'), \
     current_setting('fsync'), inet_server_port()::bigint, \
     current_setting('default_transaction_read_only')";

pub(crate) async fn findings(pool: &PgPool, sending: Sending) -> Result<Vec<Finding>, sqlx::Error> {
    let mut findings = Vec::new();
    // Prepared statements are what a pooler may mix up.
    let rows = pool.fetch_all(sqlx::raw_sql(TABLE)).await?;
    let (mut columns, mut key): (Vec<String>, Vec<String>) = Default::default();
    for row in rows {
        let (name, position): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        if position > 0 {
            key.push(name.clone());
        }
        columns.push(name);
    }
    findings.extend(table(&columns, &key));

    let server = pool.fetch_one(sqlx::raw_sql(SERVER)).await?;
    let version: i64 = server.try_get(0)?;
    if version < 130_000 {
        findings.push(Finding::error(
            format!("the server's version is {}", version / 10_000),
            "use PostgreSQL 13 or later",
        ));
    }
    let (standby, read_only): (bool, String) = (server.try_get(1)?, server.try_get(6)?);
    if standby || read_only == "on" {
        findings.push(Finding::error(
            "the server is read-only",
            "connect to the primary: `target_session_attrs` and the like are up to the application",
        ));
    }
    let isolation: String = server.try_get(2)?;
    if isolation != "read committed" {
        findings.push(Finding::warning(
            format!("the default isolation is {isolation}"),
            "expect more conflicts, which are answered 503 and right when they are retried",
        ));
    }
    let (commit, fsync): (String, String) = (server.try_get(3)?, server.try_get(4)?);
    if commit == "off" || fsync == "off" {
        findings.push(Finding::warning(
            format!("synchronous_commit is {commit}, fsync is {fsync}"),
            "a crash of the server may lose what was acknowledged, effect and record together",
        ));
    }
    let port: Option<i64> = server.try_get(5)?;
    let asked = i64::from(pool.connect_options().get_port());
    match (pooler::probe(pool).await, sending) {
        (Some(Pooler::MixesUp), Sending::Prepared) => findings.push(Finding::error(
            "a pooler in transaction mode lies in between, and mixes up prepared statements",
            "use PgBouncer 1.21 or later with max_prepared_statements, or session mode, or \
             `SqlxStore::new(pool).unprepared()`",
        )),
        (Some(Pooler::Prepares), Sending::Plain(_)) => findings.push(Finding::warning(
            "the pooler keeps prepared statements, and none are used",
            "leave `.unprepared()` out: the server then plans each statement once",
        )),
        (None, _) if port.is_some_and(|port| port != asked) => findings.push(Finding::warning(
            "the connection goes through a proxy or pooler",
            "with PgBouncer in transaction mode, use 1.21 or later with max_prepared_statements, \
             and ignore_startup_parameters=extra_float_digits",
        )),
        (Some(Pooler::Prepares), Sending::Prepared)
        | (Some(Pooler::MixesUp), Sending::Plain(_))
        | (None, _) => {}
    }
    Ok(findings)
}
