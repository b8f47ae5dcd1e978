//! SQLite: a file of its own for each test.

use std::fs::File;
use std::path::{Path, PathBuf};

use sqlx::{Connection as _, Error, SqliteConnection};
use tempfile::TempDir;

/// An empty SQLite database in a folder of its own, which is removed at the end.
#[derive(Debug)]
pub struct SqliteDatabase {
    path: PathBuf,
    // Its drop removes the folder.
    _folder: TempDir,
}

/// Makes an empty database file, in the default journal mode.
///
/// # Panics
///
/// The folder for temporary files cannot be written to.
#[must_use]
pub fn sqlite_database() -> SqliteDatabase {
    let folder = tempfile::Builder::new()
        .prefix("test-sqlite-")
        .tempdir()
        .expect("the folder for temporary files can be written to");
    let path = folder.path().join("test.db");
    File::create(&path).expect("a new folder can be written to");
    SqliteDatabase {
        path,
        _folder: folder,
    }
}

impl SqliteDatabase {
    /// The database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("sqlite://{}", self.path.display())
    }
}

/// The version of the SQLite that is built in.
///
/// # Errors
///
/// A database in memory cannot be opened.
pub async fn sqlite_version() -> Result<String, Error> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    sqlx::query_scalar("SELECT sqlite_version()")
        .fetch_one(&mut connection)
        .await
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, SqliteConnection};

    use super::sqlite_database;

    /// Two databases share nothing, and a dropped one leaves no file.
    #[tokio::test]
    async fn databases_are_separate_and_removed() -> Result<(), sqlx::Error> {
        let (one, other) = (sqlite_database(), sqlite_database());
        let mut connection = SqliteConnection::connect(&one.url()).await?;
        sqlx::raw_sql("CREATE TABLE t (n int)")
            .execute(&mut connection)
            .await?;
        let mut elsewhere = SqliteConnection::connect(&other.url()).await?;
        let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema")
            .fetch_one(&mut elsewhere)
            .await?;
        assert_eq!(tables, 0);

        connection.close().await?;
        let folder = one.path().parent().map(ToOwned::to_owned);
        drop(one);
        assert!(folder.is_some_and(|folder| !folder.exists()));
        Ok(())
    }
}
