//! Another process that has a SQLite file open: holds a lock for as long as it is told to.
//!
//! Argument: the file's URL. Reads orders from standard input, line by line: `write` and `read` take
//! a lock, `release` lets it go. Says `done` after each.

use std::error::Error;
use std::io::{BufRead as _, stdin};

use sqlx::{Connection as _, SqliteConnection};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("which file?")?;
    let mut conn = SqliteConnection::connect(&url).await?;
    for order in stdin().lock().lines() {
        let sql = match &*order? {
            "write" => "BEGIN IMMEDIATE",
            // A transaction that reads has its lock from its first statement on.
            "read" => "BEGIN; SELECT count(*) FROM sqlite_schema",
            "release" => "ROLLBACK",
            order => return Err(format!("no such order: {order}").into()),
        };
        sqlx::raw_sql(sql).execute(&mut conn).await?;
        println!("done");
    }
    Ok(())
}
