//! MySQL and MariaDB.

use std::collections::HashMap;

use sqlx::{MySqlPool, Row as _};

use super::{Finding, table};

const TABLE: &str = "SELECT CAST(c.column_name AS BINARY), CAST(coalesce(k.ordinal_position, 0) AS SIGNED), \
     CAST(c.data_type AS BINARY) \
     FROM information_schema.columns AS c \
     LEFT JOIN information_schema.key_column_usage AS k \
         ON k.table_schema = c.table_schema AND k.table_name = c.table_name \
         AND k.column_name = c.column_name AND k.constraint_name = 'PRIMARY' \
     WHERE c.table_schema = DATABASE() AND c.table_name = 'tower_idempotency_record' \
     ORDER BY 2";

/// Tables that do not take part in transactions.
const ENGINES: &str = "SELECT CAST(table_name AS BINARY), CAST(engine AS BINARY) \
     FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' \
         AND engine IN ('MyISAM', 'Aria', 'MEMORY', 'CSV', 'ARCHIVE') \
     ORDER BY table_name = 'tower_idempotency_record' DESC, table_name LIMIT 5";

/// Some of these exist on one of the two alone.
const SETTINGS: &str = "SHOW VARIABLES WHERE variable_name IN ('version', 'read_only', 'autocommit', \
     'transaction_isolation', 'tx_isolation', 'innodb_flush_log_at_trx_commit', 'max_allowed_packet', 'innodb_lock_wait_timeout')";

pub(crate) async fn findings(pool: &MySqlPool) -> Result<Vec<Finding>, sqlx::Error> {
    let mut findings = Vec::new();
    let (mut columns, mut key): (Vec<String>, Vec<String>) = Default::default();
    for row in sqlx::query(TABLE).fetch_all(pool).await? {
        let (name, position) = (text(&row, 0)?, row.try_get::<i64, _>(1)?);
        if ["owner", "operation", "key"].contains(&&*name) && text(&row, 2)? != "varbinary" {
            findings.push(Finding::error(
                format!("the column {name} of the table of records is not VARBINARY"),
                "compare the table with the folder `migrations`: a collation makes one key of several",
            ));
        }
        if position > 0 {
            key.push(name.clone());
        }
        columns.push(name);
    }
    findings.extend(table(&columns, &key));
    for row in sqlx::query(ENGINES).fetch_all(pool).await? {
        findings.push(Finding::error(
            format!("the table {} is {}", text(&row, 0)?, text(&row, 1)?),
            "`ALTER TABLE .. ENGINE = InnoDB`: what is written to it cannot be rolled back",
        ));
    }

    let mut settings = HashMap::new();
    for row in sqlx::query(SETTINGS).fetch_all(pool).await? {
        settings.insert(text(&row, 0)?.to_lowercase(), text(&row, 1)?);
    }
    let setting = |name: &str| settings.get(name).map_or("", String::as_str);
    let version = setting("version");
    if is_old(version) {
        findings.push(Finding::error(
            format!("the server's version is {version}"),
            "use MySQL 8.0.16, MariaDB 10.6, or later",
        ));
    }
    if matches!(setting("read_only"), "ON" | "1") {
        findings.push(Finding::error(
            "the server is read-only",
            "connect to the primary",
        ));
    }
    if matches!(setting("autocommit"), "OFF" | "0") {
        findings.push(Finding::error(
            "autocommit is off",
            "switch it on: claims are statements of their own, and are refused without it",
        ));
    }
    let isolation = ["transaction_isolation", "tx_isolation"].map(setting);
    if isolation.contains(&"SERIALIZABLE") {
        findings.push(Finding::warning(
            "the default isolation is SERIALIZABLE",
            "expect more conflicts, which are answered 503 and right when they are retried",
        ));
    }
    let flush = setting("innodb_flush_log_at_trx_commit");
    if !matches!(flush, "" | "1") {
        findings.push(Finding::warning(
            format!("innodb_flush_log_at_trx_commit is {flush}"),
            "a crash of the server may lose what was acknowledged, effect and record together",
        ));
    }
    // MariaDB is told with the statement.
    let wait = setting("innodb_lock_wait_timeout").parse::<u64>();
    if !version.contains("MariaDB") && wait.is_ok_and(|seconds| seconds > 5) {
        findings.push(Finding::warning(
            format!(
                "innodb_lock_wait_timeout is {} s",
                setting("innodb_lock_wait_timeout")
            ),
            "a claim that meets somebody's uncommitted work waits for so long: let it be 1 or 2",
        ));
    }
    let packet = setting("max_allowed_packet").parse::<u64>();
    if packet.is_ok_and(|bytes| bytes < 4 << 20) {
        findings.push(Finding::warning(
            format!("max_allowed_packet is {}", setting("max_allowed_packet")),
            "let it be 4 MiB or more, and larger than the longest response that is kept",
        ));
    }
    Ok(findings)
}

fn text(row: &sqlx::mysql::MySqlRow, column: usize) -> Result<String, sqlx::Error> {
    crate::driver::text(row.try_get_unchecked::<Vec<u8>, _>(column)?)
}

/// Whether a version is too old. TiDB gives one of MySQL's that it does not mean.
fn is_old(version: &str) -> bool {
    let numbers: Vec<u32> = version
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|number| number.parse().ok())
        .collect();
    let oldest: &[u32] = if version.contains("MariaDB") {
        &[10, 6]
    } else if version.contains("TiDB") {
        return false;
    } else {
        &[8, 0, 16]
    };
    *numbers < *oldest
}

#[cfg(test)]
mod tests {
    use super::is_old;

    /// Versions are compared as numbers, whatever follows them.
    #[test]
    fn versions_are_told_apart() {
        let old = [
            "5.7.44-log",
            "8.0.15",
            "10.5.29-MariaDB",
            "10.3.39-MariaDB-0+deb10u2",
        ];
        let new = [
            "8.0.16",
            "8.4.0",
            "9.1.0",
            "10.6.0-MariaDB",
            "11.4.2-MariaDB",
            "8.0.11-TiDB-v7.5.1",
        ];
        assert!(old.into_iter().all(is_old));
        assert!(!new.into_iter().any(is_old));
    }
}
