//! Purging, while clients go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Postgres};
use tokio::task::JoinSet;
use tower_idempotency::{SqlxStore, Store};

use super::Bench;
use crate::report::{Figure, Goal};
use benches::CONNECTIONS;
use benches::database::BenchDb as _;
use benches::load::{Case, Load, Way};
use benches::post::draft;
use benches::stats::Estimate;
use benches::subject::Subject;

const CLIENTS: usize = 16;

/// As many as the sweeper deletes at once.
const BATCH: u32 = 1_000;

/// How many rows a second are purged at the most, so that they last: a little more than
/// the goal.
const PACE: u32 = 25_000;

pub(crate) async fn measure(bench: &mut Bench) {
    let pool = Postgres::database(&bench.postgres, CONNECTIONS).await;
    let pairs = bench.turns().rounds;
    let slice = if bench.quick {
        Duration::from_millis(400)
    } else {
        Duration::from_secs(1)
    };
    // Enough for the fastest purge, with room to spare.
    let records = pairs as u128 * slice.as_millis() * 60;
    let fill = format!(
        "INSERT INTO tower_idempotency.record (owner, operation, key, state, claim_token, \
             claimed_at, stale_at, fingerprint, status, kept, headers, body, completed_at, expires_at) \
         SELECT 'account-' || i % 1000, 'publish', md5(i::text)::uuid, 'completed', \
             decode(md5(i::text), 'hex'), now(), now(), 'hs1:' || md5(i::text) || md5(i::text), \
             201, true, 'content-type: application/json', decode(repeat('00', 100), 'hex'), now(), \
             now() - i * interval '1 millisecond' \
         FROM generate_series(1, {records}) AS i"
    );
    for sql in [fill, "VACUUM ANALYZE tower_idempotency.record".into()] {
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&pool)
            .await
            .expect("the statement runs");
    }
    let app = Subject::Ours.app(&pool).expect("every database has it");
    let load = Load::new(Way::Call(app), Case::NewKey, CLIENTS, draft(1024));
    let capacity = load.run(Duration::from_secs(2)).await;
    let pause = Duration::from_secs_f64(CLIENTS as f64 / (capacity / 2.0));

    let store = SqlxStore::new(pool.clone());
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let mut slow = [0.0; 2];
        for turn in 0..2 {
            let purges = (pair + turn) % 2 == 1;
            let purger = Purger::start(&store, purges);
            slow[usize::from(purges)] = load.paced(slice, pause).await;
            if let Some(rate) = purger.stop().await {
                rates.push(rate);
            }
        }
        ratios.push(slow[1] / slow[0]);
        // As autovacuum would: a purge passes over the index entries of whatever was purged since.
        sqlx::raw_sql("VACUUM tower_idempotency.record")
            .execute(&pool)
            .await
            .expect("a vacuum");
    }
    bench.report.add(Figure::new(
        "PostgreSQL, purged in a second, other load at half of capacity",
        "rows",
        Estimate::of(&rates),
        Goal::AtLeast(20_000.0),
    ));
    bench.report.add(Figure::new(
        "PostgreSQL, p99 of new keys while purging / without",
        "",
        Estimate::of(&ratios),
        Goal::AtMost(1.5),
    ));
    pool.close().await;
}

/// How long a batch takes at that pace.
const BATCH_TAKES: Duration = Duration::from_micros(1_000_000 / (PACE / BATCH) as u64);

/// Purges, or does not, until it is stopped.
struct Purger {
    stop: Arc<AtomicBool>,
    purged: Arc<AtomicU64>,
    started: Instant,
    task: JoinSet<()>,
}

impl Purger {
    fn start(store: &SqlxStore<Postgres>, purges: bool) -> Self {
        let mut purger = Self {
            stop: Arc::default(),
            purged: Arc::default(),
            started: Instant::now(),
            task: JoinSet::new(),
        };
        if purges {
            let (stop, purged) = (Arc::clone(&purger.stop), Arc::clone(&purger.purged));
            let store = store.clone();
            purger.task.spawn(async move {
                let (started, mut batches) = (tokio::time::Instant::now(), 0);
                while !stop.load(Ordering::Relaxed) {
                    tokio::time::sleep_until(started + batches * BATCH_TAKES).await;
                    batches += 1;
                    let batch = store.purge(BATCH).await.expect("a purge");
                    assert_eq!(batch, u64::from(BATCH), "there is enough to purge");
                    purged.fetch_add(batch, Ordering::Relaxed);
                }
            });
        }
        purger
    }

    /// How many rows it deleted in a second.
    async fn stop(self) -> Option<f64> {
        self.stop.store(true, Ordering::Relaxed);
        let ran = !self.task.is_empty();
        self.task.join_all().await;
        let rate =
            self.purged.load(Ordering::Relaxed) as f64 / self.started.elapsed().as_secs_f64();
        ran.then_some(rate)
    }
}
