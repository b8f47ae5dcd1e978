//! Looking at a database before it is relied on.

use std::fmt;

#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
mod pooler;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

/// Something about the database that the application should know of at start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub advice: &'static str,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// It works, but not as well or as safely as it might.
    Warning,
    /// Requests will fail.
    Error,
}

impl Finding {
    pub(crate) fn warning(what: impl Into<String>, advice: &'static str) -> Self {
        Self {
            severity: Severity::Warning,
            what: what.into(),
            advice,
        }
    }

    pub(crate) fn error(what: impl Into<String>, advice: &'static str) -> Self {
        Self {
            severity: Severity::Error,
            what: what.into(),
            advice,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}; {}", self.what, self.advice)
    }
}

/// The columns of the table of records.
const COLUMNS: [&str; 15] = [
    "owner",
    "operation",
    "key",
    "state",
    "claim_token",
    "claimed_at",
    "stale_at",
    "fingerprint",
    "status",
    "kept",
    "headers",
    "body",
    "resource_ref",
    "completed_at",
    "expires_at",
];

/// What is wrong with the table, from the columns that it has and those of its primary key.
fn table(columns: &[String], key: &[String]) -> Option<Finding> {
    const MIGRATE: &str = "call `tower_idempotency::migrate(&pool).await?` at start";
    if columns.is_empty() {
        return Some(Finding::error("the table of records is missing", MIGRATE));
    }
    let missing: Vec<&str> = COLUMNS
        .into_iter()
        .filter(|wanted| !columns.iter().any(|column| column == wanted))
        .collect();
    if !missing.is_empty() {
        let what = format!("the table of records lacks {}", missing.join(", "));
        return Some(Finding::error(what, MIGRATE));
    }
    let unique = key == ["owner", "operation", "key"];
    (!unique).then(|| {
        Finding::error(
            "the primary key of the table of records is not (owner, operation, key)",
            "compare the table with the folder `migrations`",
        )
    })
}
