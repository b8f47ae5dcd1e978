//! The text of a statement on its way to the database: one can be another, to see whether a test
//! notices.

use std::env;
use std::sync::LazyLock;

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

/// What is sent instead of what.
static MUTANT: LazyLock<Option<(String, String)>> = LazyLock::new(|| {
    let of = env::var("SQL_MUTANT_OF").ok()?;
    Some((of, env::var("SQL_MUTANT_IS").ok()?))
});

/// A statement of [`crate::dialect::Sql`]: it is replaced whole.
pub(crate) fn statement(sql: &'static str) -> &'static str {
    match &*MUTANT {
        Some((of, is)) if of == sql => is,
        _ => sql,
    }
}

/// Statements that were put together: a part of them is replaced.
pub(crate) fn composed(sql: SqlStr) -> SqlStr {
    match &*MUTANT {
        Some((of, is)) if sql.as_str().contains(of) => {
            AssertSqlSafe(sql.as_str().replace(of, is)).into_sql_str()
        }
        _ => sql,
    }
}

#[cfg(test)]
mod tests {
    use crate::dialect::{Dialect, Sql};
    use crate::driver::Written as _;

    fn print<DB: Dialect>() {
        let Sql {
            lookup,
            claim,
            replace,
            complete,
            complete_alone,
            free,
            renew,
            mark_unknown,
            tombstone,
            erase_owner,
            purge_expired,
            purge_stale,
        } = DB::SQL;
        for (name, statement) in [
            ("lookup", lookup),
            ("claim", claim),
            ("replace", replace),
            ("complete", complete),
            ("complete_alone", complete_alone),
            ("free", free),
            ("renew", renew),
            ("mark_unknown", mark_unknown),
            ("tombstone", tombstone),
            ("erase_owner", erase_owner),
            ("purge_expired", purge_expired),
            ("purge_stale", purge_stale),
        ] {
            println!("\n{}\t{name}\t{}", DB::NAME, statement.sql());
        }
        if let Some(joining) = DB::JOINING {
            for (name, statement) in [
                ("claim_many", &joining.many),
                ("claim_relaxed", &joining.relaxed),
                ("claim_many_relaxed", &joining.many_relaxed),
            ] {
                println!("\n{}\t{name}\t{}", DB::NAME, statement.sql());
            }
        }
    }

    /// What there is to be mutated.
    #[test]
    fn statements() {
        print::<sqlx::Postgres>();
        print::<sqlx::Sqlite>();
        print::<sqlx::MySql>();
    }
}
