//! Claims and replays in a large table and in a small one.

use std::time::Instant;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use tower_idempotency::{
    Claim, ClaimOutcome, Fingerprint, IdempotencyKey, Operation, Owner, RecordId, SqlxStore, Store,
};

use super::Bench;
use crate::report::{Figure, Goal};
use benches::load::fresh_key;
use benches::stats::Estimate;

const SMALL: u64 = 10_000;

/// Statements in one half of a pair.
const STATEMENTS: usize = 150;

/// A table of records, and keys that are in it.
struct Table {
    pool: PgPool,
    store: SqlxStore<sqlx::Postgres>,
    options: PgConnectOptions,
    keys: Vec<String>,
}

impl Table {
    async fn of(bench: &Bench, records: u64) -> Self {
        let options = bench.postgres.create().await;
        let pool = bench.postgres.pool(options.clone(), 1).await;
        let run = async |sql: String| {
            let sql = sqlx::raw_sql(AssertSqlSafe(sql));
            sql.execute(&pool).await.expect("the statement runs")
        };
        // As the layer completes them, keys in random order.
        run(format!(
            "INSERT INTO tower_idempotency.record (owner, operation, key, state, claim_token, \
                 claimed_at, stale_at, fingerprint, status, kept, headers, body, completed_at) \
             SELECT 'account-' || i % 1000, 'publish', md5(i::text)::uuid, 'completed', \
                 decode(md5(i::text), 'hex'), now(), now(), \
                 'hs1:' || md5(i::text) || md5(i::text), 201, true, \
                 'content-type: application/json', decode(repeat('00', 100), 'hex'), now() \
             FROM generate_series(1, {records}) AS i"
        ))
        .await;
        run("VACUUM ANALYZE tower_idempotency.record".into()).await;
        run("CHECKPOINT".into()).await;
        let keys = (0..4_000)
            .map(|_| fastrand::u64(1..=records).to_string())
            .collect::<Vec<_>>();
        let keys = sqlx::query_scalar(
            "SELECT 'account-' || i::bigint % 1000 || ' ' || md5(i)::uuid FROM unnest($1) AS i",
        )
        .bind(keys)
        .fetch_all(&pool)
        .await
        .expect("the keys");
        Self {
            store: SqlxStore::new(pool.clone()),
            pool,
            options,
            keys,
        }
    }

    /// How long a claim takes.
    async fn claims(&self, replays: bool) -> f64 {
        let claims: Vec<Claim> = (0..STATEMENTS).map(|_| self.one(replays)).collect();
        let started = Instant::now();
        for claim in &claims {
            let outcome = self.store.claim(claim).await.expect("the store answers");
            match (replays, outcome) {
                (false, ClaimOutcome::Acquired { .. }) | (true, ClaimOutcome::Mismatch) => {}
                (_, outcome) => panic!("{outcome:?}"),
            }
        }
        started.elapsed().as_secs_f64()
    }

    fn one(&self, replays: bool) -> Claim {
        let (owner, key) = if replays {
            let known = &self.keys[fastrand::usize(..self.keys.len())];
            let (owner, key) = known.split_once(' ').expect("an owner and a key");
            (owner.to_owned(), key.to_owned())
        } else {
            (format!("account-{}", fastrand::u16(..1000)), fresh_key())
        };
        let id = RecordId {
            owner: Owner::new(owner).expect("an owner"),
            operation: Operation::from_static("publish"),
            key: IdempotencyKey::from_text(&key).expect("a key"),
        };
        Claim::new(id, Fingerprint::from_stored("hs1:another"))
    }

    /// How PostgreSQL runs the claim's statement, as the driver has prepared it.
    async fn plan(&self) -> String {
        let mut conn = self.pool.acquire().await.expect("a connection");
        let name: String = sqlx::query_scalar(
            "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%patience%' LIMIT 1",
        )
        .fetch_one(&mut *conn)
        .await
        .expect("the claim has been prepared");
        sqlx::raw_sql("SET plan_cache_mode = force_generic_plan")
            .execute(&mut *conn)
            .await
            .expect("the setting");
        let explain =
            format!("EXPLAIN (COSTS OFF) EXECUTE {name} ('o', 'publish', 'k', '\\x00', 'f', 1)");
        let lines: Vec<String> = sqlx::raw_sql(AssertSqlSafe(explain))
            .fetch_all(&mut *conn)
            .await
            .expect("a plan")
            .iter()
            .map(|row| sqlx::Row::get(row, 0))
            .collect();
        lines.join("\n")
    }
}

pub(crate) async fn measure(bench: &mut Bench) {
    let (large, title) = if bench.quick {
        (1_000_000, "1 million")
    } else {
        (10_000_000, "10 million")
    };
    let small = Table::of(bench, SMALL).await;
    let large = Table::of(bench, large).await;
    for (what, replays) in [("claim", false), ("replay", true)] {
        let mut ratios = Vec::new();
        for pair in 0..=bench.turns().rounds {
            let (of, to) = if pair % 2 == 0 {
                let of = large.claims(replays).await;
                (of, small.claims(replays).await)
            } else {
                let to = small.claims(replays).await;
                (large.claims(replays).await, to)
            };
            // The first pair warms up.
            if pair > 0 {
                ratios.push(of / to);
            }
        }
        bench.report.add(Figure::new(
            format!("PostgreSQL, {what} at {title} records / at 10 thousand"),
            "",
            Estimate::of(&ratios),
            Goal::AtMost(1.3),
        ));
    }
    let same = small.plan().await == large.plan().await;
    bench.report.add(Figure::new(
        format!("PostgreSQL, claim: plans that differ at {title} records"),
        "",
        Estimate::counted(if same { 0.0 } else { 1.0 }),
        Goal::AtMost(0.0),
    ));
    for table in [small, large] {
        table.pool.close().await;
        let name = table.options.get_database().unwrap_or_default();
        let mut admin = PgConnection::connect(&bench.postgres.server().url())
            .await
            .expect("a connection");
        sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE {name}")))
            .execute(&mut admin)
            .await
            .expect("nobody uses it");
    }
}
