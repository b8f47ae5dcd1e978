//! What can be wrong with a statement: one small change of its text each.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// One statement that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mutant {
    pub(super) database: String,
    pub(super) statement: String,
    /// What was changed, for people.
    pub(super) change: String,
    /// The text that is replaced.
    pub(super) of: String,
    /// What it is replaced by.
    pub(super) is: String,
}

impl Mutant {
    /// As docs/mutants.md names it.
    pub(super) fn name(&self) -> String {
        let Self {
            database,
            statement,
            change,
            ..
        } = self;
        format!("{database} {statement}: {change}")
    }

    /// Whether a row of the table in docs/mutants.md is about it: databases, statements, changes.
    pub(super) fn is_named(&self, table: &str) -> bool {
        table.lines().any(|row| {
            let mut cells = row.split('|').skip(1);
            let mut next = || cells.next().unwrap_or_default();
            let (databases, statements, changes) = (next(), next(), next());
            let listed =
                |cell: &str, name: &str| cell.split(',').any(|listed| listed.trim() == name);
            listed(databases, &self.database)
                && listed(statements, &self.statement)
                && changes
                    .split(';')
                    .any(|listed| listed.trim() == self.change)
        })
    }
}

/// A comparison: both of its sides.
static COMPARISON: LazyLock<Regex> = LazyLock::new(|| {
    let side = r"(?:[a-z_]+\.)?`?[a-z_]+`?|@@autocommit|current_setting\([^)]*\)";
    let other = r"\$\d+|\?\d*|'[a-z]+'|its_[a-z]+|1|encode\([^)]*\)|[a-z]+\.`?[a-z_]+`?|now\(\)( - \$2 \* interval '1 millisecond')?|UTC_TIMESTAMP\(3\)( - INTERVAL \? \* 1000 MICROSECOND)?|CAST\(round\(\(julianday\('now'\) - 2440587\.5\) \* 86400000\) AS INTEGER\)( - \?2)?";
    Regex::new(&format!(
        r"(?P<left>{side}) (?P<operator>=|<=) (?P<right>{other})"
    ))
    .expect("a pattern")
});

/// Texts, and what stands in their place: nowhere but where they are.
const REPLACED: &[(&str, &str)] = &[
    (" FOR UPDATE SKIP LOCKED", ""),
    (" FOR UPDATE SKIP LOCKED", " FOR UPDATE"),
    (" NOT EXISTS (SELECT FROM seen) AND", ""),
    (" state IS NULL AND", ""),
    (" WHERE state IS NOT NULL", ""),
    (" WHERE bytes <= 131072", ""),
    ("<= 131072", "> 131072"),
    (
        " AND current_setting('transaction_isolation') <> 'serializable'",
        "",
    ),
    (
        "DO NOTHING",
        "DO UPDATE SET claim_token = excluded.claim_token",
    ),
    ("'200ms', true", "'0', true"),
    ("'200ms', true", "'200ms', false"),
    ("'20ms', true", "'0', true"),
    ("'20ms', true", "'20ms', false"),
    ("'off', true", "'off', false"),
    (
        "/*M!100600 SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ ",
        "",
    ),
    (" ORDER BY expires_at", ""),
    (
        " AND ((tableoid, ctid) IN (SELECT part, place FROM doomed)) IS TRUE",
        "",
    ),
    ("LIMIT $1", "LIMIT $1 + 1000"),
    ("LIMIT ?1", "LIMIT ?1 + 1000"),
    (" FORCE INDEX (record_resource)", ""),
    (" FORCE INDEX (record_expires)", ""),
    ("STRAIGHT_JOIN", "JOIN"),
    ("clock_timestamp()", "now()"),
    ("+ $", "+ 10 * $"),
    ("+ ?", "+ 10 * ?"),
    ("+ INTERVAL ? * 1000", "+ INTERVAL ? * 10000"),
    (
        "claim_token = $4, ",
        "claim_token = coalesce(claim_token, $4), ",
    ),
    (
        "claim_token = ?4, ",
        "claim_token = coalesce(claim_token, ?4), ",
    ),
    (
        "claim_token = ?, ",
        "claim_token = coalesce(r.claim_token, ?), ",
    ),
    (
        "fingerprint = $5",
        "fingerprint = coalesce(r.fingerprint, $5)",
    ),
    (
        "fingerprint = ?5",
        "fingerprint = coalesce(fingerprint, ?5)",
    ),
    (
        "fingerprint = ?, ",
        "fingerprint = coalesce(r.fingerprint, ?), ",
    ),
    ("resource_ref = NULL, ", ""),
    ("r.resource_ref = NULL, ", ""),
    (", expires_at = NULL", ""),
    (", r.expires_at = NULL", ""),
    ("headers = NULL, body = NULL, ", ""),
    ("fingerprint = NULL, ", ""),
];

/// What the statements around a transaction can lack, by database.
const COMPOSED: &[(&str, &str, &str)] = &[
    (
        "postgres",
        "SET LOCAL tower_idempotency.claim",
        "SET tower_idempotency.claim",
    ),
    ("postgres", "COMMIT AND CHAIN", "COMMIT"),
    ("postgres", "ROLLBACK TO SAVEPOINT ", "SELECT 1 AS "),
    ("postgres", "RELEASE SAVEPOINT ", "SELECT 1 AS "),
    ("sqlite", "BEGIN IMMEDIATE", "BEGIN"),
    ("sqlite", "ROLLBACK TO SAVEPOINT ", "SELECT 1 AS "),
    ("sqlite", "RELEASE SAVEPOINT ", "SELECT 1 AS "),
    ("mysql", "START TRANSACTION", "SELECT 1"),
    ("mysql", "ROLLBACK TO SAVEPOINT ", "SELECT 1 AS "),
    ("mysql", "RELEASE SAVEPOINT ", "SELECT 1 AS "),
    ("mysql", "ROLLBACK RELEASE", "ROLLBACK"),
];

/// The mutants of one statement.
pub(super) fn of_statement(database: &str, statement: &str, sql: &str) -> Vec<Mutant> {
    let mutant = |change: String, is: String| Mutant {
        database: database.to_owned(),
        statement: statement.to_owned(),
        change,
        of: sql.to_owned(),
        is,
    };
    let mut mutants = Vec::new();
    for found in COMPARISON.captures_iter(sql) {
        let whole = found.get(0).expect("the whole match");
        if is_assignment(&sql[..whole.start()]) {
            continue;
        }
        let replaced = |by: &str| [&sql[..whole.start()], by, &sql[whole.end()..]].concat();
        let nth = nth(sql, whole.as_str(), whole.start());
        let shown = shortened(whole.as_str());
        let always = format!("({} OR 1 = 1)", whole.as_str());
        mutants.push(mutant(format!("without `{shown}`{nth}"), replaced(&always)));
        if &found["operator"] == "<=" {
            let turned = COMPARISON.replace(whole.as_str(), |found: &Captures<'_>| {
                format!("{} >= {}", &found["left"], &found["right"])
            });
            mutants.push(mutant(
                format!("`{shown}` with `>=`{nth}"),
                replaced(&turned),
            ));
        }
    }
    for (text, by) in REPLACED {
        for (at, _) in sql.match_indices(text) {
            let is = [&sql[..at], by, &sql[at + text.len()..]].concat();
            let nth = nth(sql, text, at);
            let (text, by) = (text.trim(), by.trim());
            let change = match by {
                "" => format!("without `{text}`{nth}"),
                by => format!("`{text}` is `{by}`{nth}"),
            };
            mutants.push(mutant(change, is));
        }
    }
    mutants
}

/// The mutants of what is put together.
pub(super) fn composed() -> impl Iterator<Item = Mutant> {
    COMPOSED.iter().map(|(database, of, is)| Mutant {
        database: (*database).to_owned(),
        statement: "transaction".to_owned(),
        change: format!("`{}` is `{}`", of.trim(), is.trim()),
        of: (*of).to_owned(),
        is: (*is).to_owned(),
    })
}

/// Whether what comes next is assigned, not compared.
fn is_assignment(before: &str) -> bool {
    let last = |words: &[&str]| words.iter().filter_map(|word| before.rfind(word)).max();
    last(&[" SET "]) > last(&[" WHERE ", " ON ", "SELECT "])
}

/// Which one it is, where there are several.
fn nth(sql: &str, text: &str, at: usize) -> String {
    match sql[..at].matches(text).count() {
        0 => String::new(),
        before => format!(" ({})", before + 1),
    }
}

/// Without the long way in which SQLite says what time it is.
fn shortened(condition: &str) -> String {
    let now = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)";
    condition.replace(now, "now").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::of_statement;

    fn mutated(sql: &str) -> Vec<(String, String)> {
        let mutants = of_statement("postgres", "free", sql).into_iter();
        mutants.map(|mutant| (mutant.change, mutant.is)).collect()
    }

    /// Each condition is left out once, keeps its parameters, and what is assigned is left alone.
    #[test]
    fn conditions_are_left_out_one_by_one() {
        assert_eq!(
            mutated("UPDATE t SET state = 'x' WHERE owner = $1 AND stale_at <= now()"),
            [
                (
                    "without `owner = $1`".to_owned(),
                    "UPDATE t SET state = 'x' WHERE (owner = $1 OR 1 = 1) AND stale_at <= now()"
                        .to_owned()
                ),
                (
                    "without `stale_at <= now()`".to_owned(),
                    "UPDATE t SET state = 'x' WHERE owner = $1 AND (stale_at <= now() OR 1 = 1)"
                        .to_owned()
                ),
                (
                    "`stale_at <= now()` with `>=`".to_owned(),
                    "UPDATE t SET state = 'x' WHERE owner = $1 AND stale_at >= now()".to_owned()
                ),
            ]
        );
    }

    /// A row of the table names every mutant of its databases, statements and changes.
    #[test]
    fn a_row_names_mutants() {
        let [mutant] = &of_statement("sqlite", "free", "DELETE FROM t WHERE a = $1")[..] else {
            panic!("one condition");
        };
        assert!(
            mutant.is_named(
                "| postgres, sqlite | free, renew | without `b`; without `a = $1` | why |"
            )
        );
        assert!(!mutant.is_named("| postgres | free | without `a = $1` | why |"));
        assert!(!mutant.is_named("| sqlite | renew | without `a = $1` | why |"));
        assert!(!mutant.is_named("| sqlite | free | without `a = $1 ` | why |"));
    }

    /// Of two places with the same text, each is changed, and told which one it is.
    #[test]
    fn each_place_is_changed() {
        let changes: Vec<_> = mutated("SELECT a WHERE b = $1 AND b = $1")
            .into_iter()
            .map(|(change, _)| change)
            .collect();
        assert_eq!(changes, ["without `b = $1`", "without `b = $1` (2)"]);
    }
}
