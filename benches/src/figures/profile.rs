//! Where the time goes: processor time here and in the database, and what is written to the log.

use std::fs;
use std::time::Duration;

use sqlx::{PgPool, Postgres};

use super::Bench;
use benches::CONNECTIONS;
use benches::database::BenchDb as _;
use benches::load::{Case, Load, Way};
use benches::post::draft;
use benches::subject::{Subject, keep_replies};

const CLIENTS: usize = 16;

/// What was used up to now: seconds of this process, seconds of the database's, bytes of its log.
struct Used([f64; 3]);

impl Used {
    async fn now(pool: &PgPool) -> Self {
        let log = Postgres::number(
            pool,
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint",
        )
        .await;
        let backends: Vec<i32> = sqlx::query_scalar("SELECT pid FROM pg_stat_activity")
            .fetch_all(pool)
            .await
            .expect("the backends");
        let database = backends.iter().map(|pid| processor_time(&pid.to_string()));
        Self([processor_time("self"), database.sum(), log as f64])
    }
}

/// The seconds that a process has run, as Linux tells.
fn processor_time(pid: &str) -> f64 {
    // By far the most common.
    const TICKS_IN_A_SECOND: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in brackets, may have blanks.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum();
    ticks / TICKS_IN_A_SECOND
}

/// Prints what a request of each subject uses.
pub(crate) async fn print(bench: &Bench) {
    let pool = Postgres::database(&bench.postgres, CONNECTIONS).await;
    println!(
        "{:<12} {:<12} {:>10} {:>12} {:>12} {:>12}",
        "case", "subject", "requests/s", "us here", "us database", "bytes of log"
    );
    for (case, subjects) in [
        (
            Case::NewKey,
            &[
                Subject::Bare,
                Subject::ByHand,
                Subject::Ours,
                Subject::Relaxed,
            ][..],
        ),
        (
            Case::Replay,
            &[Subject::Read, Subject::ByHand, Subject::Ours],
        ),
    ] {
        let mut loads = Vec::new();
        for subject in subjects {
            let Some(app) = subject.app(&pool) else {
                continue;
            };
            let mut load = Load::new(Way::Call(app), case, CLIENTS, draft(1024));
            if *subject == Subject::Read {
                keep_replies(&pool, &load.keys(), &draft(1024)).await;
            }
            load.prepare().await;
            loads.push((subject, load));
        }
        let mut used = vec![(0.0, [0.0; 3]); loads.len()];
        let time = if bench.quick { 2 } else { 10 };
        for _ in 0..time * 2 {
            for ((_, load), used) in loads.iter().zip(&mut used) {
                let Used(before) = Used::now(&pool).await;
                let slice = Duration::from_millis(500);
                used.0 += load.run(slice).await * slice.as_secs_f64();
                let Used(after) = Used::now(&pool).await;
                for (sum, (after, before)) in used.1.iter_mut().zip(after.into_iter().zip(before)) {
                    *sum += after - before;
                }
            }
        }
        for ((subject, _), (requests, [here, database, log])) in loads.iter().zip(used) {
            println!(
                "{:<12} {:<12} {:>10.0} {:>12.1} {:>12.1} {:>12.0}",
                case.title(),
                subject.title(),
                requests / f64::from(time),
                here / requests * 1e6,
                database / requests * 1e6,
                log / requests
            );
        }
    }
    pool.close().await;
}
