//! The published crate contains its migrations.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::metadata::Workspace;
use crate::{Outcome, command};

/// The command that lists what is published.
pub(crate) fn list(workspace: &Workspace) -> Command {
    let mut command = command::cargo(workspace);
    command.args(["package", "--list", "--allow-dirty"]);
    command.args(["--package", "tower-idempotency-sqlx"]);
    command
}

/// Checks that every migration at the root is among what is published.
pub(crate) fn check(workspace: &Workspace) -> Outcome {
    let listed = command::output(&mut list(workspace))?;
    let migrations = migrations(&workspace.root)?;
    let missing = missing(&migrations, &listed);
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "tower-idempotency-sqlx would be published without {}",
        missing.join(", ")
    )
    .into())
}

/// The migrations, as paths from the root.
fn migrations(root: &Path) -> Outcome<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for database in fs::read_dir(root.join("migrations"))? {
        let database = database?;
        let before = found.len();
        for file in fs::read_dir(database.path())? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "sql") {
                found.insert(path.strip_prefix(root)?.to_string_lossy().into_owned());
            }
        }
        if found.len() == before {
            return Err(format!("{} has no migration", database.path().display()).into());
        }
    }
    Ok(found)
}

fn missing<'a>(migrations: &'a BTreeSet<String>, listed: &str) -> Vec<&'a str> {
    let listed: BTreeSet<&str> = listed.lines().collect();
    migrations
        .iter()
        .map(String::as_str)
        .filter(|migration| !listed.contains(migration))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::missing;

    /// A migration that is not among the files is found, also beside one of a similar name.
    #[test]
    fn a_migration_that_is_left_out_is_found() {
        let migrations = ["migrations/postgres/1.sql", "migrations/sqlite/1.sql"]
            .map(String::from)
            .into();
        let listed = "Cargo.toml\nmigrations/sqlite/1.sql\nold/migrations/postgres/1.sql\n";
        assert_eq!(missing(&migrations, listed), ["migrations/postgres/1.sql"]);
    }
}
