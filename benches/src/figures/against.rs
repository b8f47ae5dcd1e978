//! New keys and replays, against the protocol by hand and against bare handlers.

use sqlx::Postgres;

use super::Bench;
use crate::report::{Figure, Goal};
use benches::CONNECTIONS;
use benches::database::BenchDb as _;
use benches::load::{Case, Load, Served, Way};
use benches::pairs::Rates;
use benches::post::draft;
use benches::subject::{Subject, keep_replies};

/// The layer against the same statements in the handler.
pub(crate) async fn by_hand(bench: &mut Bench) {
    let pool = Postgres::database(&bench.postgres, CONNECTIONS).await;
    for clients in [16, 64] {
        let load = |subject: Subject| {
            let app = subject.app(&pool).expect("every database has it");
            Load::new(Way::Call(app), Case::NewKey, clients, draft(1024))
        };
        let (ours, by_hand) = (load(Subject::Ours), load(Subject::ByHand));
        let rates = Rates::measure(&[&ours, &by_hand], bench.turns()).await;
        bench.report.add(Figure::new(
            format!("PostgreSQL, new key, 1 KiB, {clients} clients: ours / by hand"),
            "",
            rates.ratio(0, 1),
            Goal::AtLeast(0.97),
        ));
    }
    pool.close().await;
}

/// A replay against a bare handler that reads one row.
pub(crate) async fn read(bench: &mut Bench) {
    let pool = Postgres::database(&bench.postgres, CONNECTIONS).await;
    let load = |subject: Subject| {
        let app = subject.app(&pool).expect("every database has it");
        Load::new(Way::Call(app), Case::Replay, 16, draft(1024))
    };
    let (mut ours, mut read) = (load(Subject::Ours), load(Subject::Read));
    ours.prepare().await;
    keep_replies(&pool, &read.keys(), &draft(1024)).await;
    read.prepare().await;
    let rates = Rates::measure(&[&ours, &read], bench.turns()).await;
    bench.report.add(Figure::new(
        "PostgreSQL, replay, 1 KiB, 16 clients: ours / a bare read",
        "",
        rates.ratio(0, 1),
        Goal::AtLeast(0.85),
    ));
    pool.close().await;
}

/// The layer against the bare handler, over HTTP.
pub(crate) async fn bare(bench: &mut Bench) {
    let pool = Postgres::database(&bench.postgres, CONNECTIONS).await;
    let mut served = Vec::new();
    let mut loads = Vec::new();
    for subject in [
        Subject::Bare,
        Subject::Ours,
        Subject::Relaxed,
        Subject::ByHand,
    ] {
        let Some(app) = subject.app(&pool) else {
            continue;
        };
        let server = Served::start(app).await;
        let way = Way::Http(server.address);
        loads.push((subject, Load::new(way, Case::NewKey, 16, draft(1024))));
        served.push(server);
    }
    let all: Vec<&Load> = loads.iter().map(|(_, load)| load).collect();
    let rates = Rates::measure(&all, bench.turns()).await;
    for (index, (subject, _)) in loads.iter().enumerate().skip(1) {
        let goal = match subject {
            Subject::Ours => Goal::Aim(0.65),
            Subject::Relaxed => Goal::Aim(0.75),
            _ => Goal::Stated,
        };
        bench.report.add(Figure::new(
            format!(
                "PostgreSQL over HTTP, new key, 16 clients: {} / bare",
                subject.title()
            ),
            "",
            rates.ratio(index, 0),
            goal,
        ));
    }
    pool.close().await;
}
