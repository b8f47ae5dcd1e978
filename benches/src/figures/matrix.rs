//! Everybody side by side, but for PostgreSQL by socket, where `benches/peers` measures other crates
//! as well.

use std::time::Duration;

use benches::CONNECTIONS;
use benches::cell::Cell;
use benches::database::{BenchDb as _, MariadbEngine};
use benches::place::Place;
use sqlx::{MySql, Sqlite};
use test_support::{Proxy, Traffic, sqlite_database};

use super::Bench;

const AWAY: &str = "PostgreSQL, 1 ms away";

/// Measures all cells of the places that are wanted.
pub(crate) async fn measure(bench: &Bench, wanted: impl Fn(&str) -> bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    if wanted(AWAY) {
        let proxy = Proxy::start(bench.postgres.server().address()).await;
        let options = bench.postgres.create().await;
        let options = bench.postgres.via(&options, proxy.address());
        let pool = bench.postgres.pool(options, CONNECTIONS).await;
        // A round trip takes a millisecond longer.
        proxy.set_both(Traffic::Delay(Duration::from_micros(500)));
        let mut away = Place::new(AWAY, pool);
        away.slice *= 2;
        away.measure(&mut cells).await;
    }
    if wanted(Sqlite::TITLE) {
        let file = sqlite_database();
        let pool = Sqlite::database(&file, CONNECTIONS).await;
        Place::new(Sqlite::TITLE, pool).measure(&mut cells).await;
    }
    if wanted(MySql::TITLE) {
        let engine = MariadbEngine::start();
        let pool = MySql::database(&engine, CONNECTIONS).await;
        Place::new(MySql::TITLE, pool).measure(&mut cells).await;
    }
    cells
}
