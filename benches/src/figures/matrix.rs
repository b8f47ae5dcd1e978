//! Everybody side by side, but on PostgreSQL, where `benches/peers` measures other crates as well.

use benches::CONNECTIONS;
use benches::cell::Cell;
use benches::database::{BenchDb as _, MariadbEngine};
use benches::place::Place;
use sqlx::{MySql, Sqlite};
use test_support::sqlite_database;

/// Measures all cells of the places that are wanted.
pub(crate) async fn measure(wanted: impl Fn(&str) -> bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    if wanted(Sqlite::TITLE) {
        let file = sqlite_database();
        let pool = Sqlite::database(&file, CONNECTIONS).await;
        let mut sqlite = Place::new(Sqlite::TITLE, pool);
        // Who writes and who checkpoints changes from turn to turn.
        sqlite.slice *= 4;
        sqlite.measure(&mut cells).await;
    }
    if wanted(MySql::TITLE) {
        let engine = MariadbEngine::start();
        let pool = MySql::database(&engine, CONNECTIONS).await;
        Place::new(MySql::TITLE, pool).measure(&mut cells).await;
    }
    cells
}
