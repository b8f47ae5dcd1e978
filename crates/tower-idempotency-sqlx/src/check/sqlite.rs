//! SQLite.

use sqlx::{Row as _, SqlitePool};

use super::{Finding, table};

pub(crate) async fn findings(pool: &SqlitePool) -> Result<Vec<Finding>, sqlx::Error> {
    let mut findings = Vec::new();
    let sql = "SELECT name, pk FROM pragma_table_info('tower_idempotency_record') ORDER BY pk";
    let (mut columns, mut key): (Vec<String>, Vec<String>) = Default::default();
    for row in sqlx::query(sql).fetch_all(pool).await? {
        let (name, position): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        if position > 0 {
            key.push(name.clone());
        }
        columns.push(name);
    }
    findings.extend(table(&columns, &key));

    let version: String = sqlx::query_scalar("SELECT sqlite_version()")
        .fetch_one(pool)
        .await?;
    let mut parts = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    if (parts.next(), parts.next()) < (Some(3), Some(37)) {
        findings.push(Finding::error(
            format!("the version of SQLite is {version}"),
            "use 3.37 or later, such as the one bundled with sqlx",
        ));
    }
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(pool)
        .await?;
    match journal.as_str() {
        "wal" => {}
        "memory" if pool.options().get_max_connections() > 1 => findings.push(Finding::error(
            "the database is in memory, and each connection of the pool has one of its own",
            "use a file, or a pool of one connection",
        )),
        journal => findings.push(Finding::warning(
            format!("the journal mode is {journal}"),
            "set `.journal_mode(SqliteJournalMode::Wal)`: readers then do not wait for the writer",
        )),
    }
    let busy: i64 = sqlx::query_scalar("PRAGMA busy_timeout")
        .fetch_one(pool)
        .await?;
    if busy < 1_000 {
        findings.push(Finding::warning(
            format!("the busy time-out is {busy} ms"),
            "set `.busy_timeout(Duration::from_secs(5))`, or writers of other processes fail at once",
        ));
    }
    Ok(findings)
}
