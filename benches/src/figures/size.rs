//! How many bytes a record takes.

use bytes::Bytes;
use http::StatusCode;
use sqlx::{MySql, Pool, Postgres, Sqlite};
use tokio::task::JoinSet;
use tower_idempotency::{
    Claim, Completion, Fingerprint, IdempotencyKey, Lease, Operation, Owner, RecordId, ResourceRef,
    SqlxStore, Store, StoredResponse,
};

use super::Bench;
use crate::report::{Figure, Goal};
use benches::database::{BenchDb, MariadbEngine};
use benches::load::fresh_key;
use benches::stats::Estimate;

pub(crate) async fn measure(bench: &mut Bench) {
    let pool = Postgres::database(&bench.postgres, 16).await;
    of(bench, &pool, Goal::AtMost(620.0), Goal::AtMost(900.0)).await;
    let file = test_support::sqlite_database();
    let pool = Sqlite::database(&file, 4).await;
    of(bench, &pool, Goal::Stated, Goal::Stated).await;
    let engine = MariadbEngine::start();
    let pool = MySql::database(&engine, 16).await;
    of(bench, &pool, Goal::Stated, Goal::Stated).await;
}

/// Records with a key of 36 bytes, a body of 100, Location and a reference.
async fn of<DB: BenchDb>(bench: &mut Bench, pool: &Pool<DB>, packed: Goal, lived: Goal) {
    let records = if bench.quick { 10_000 } else { 50_000 };
    let empty = DB::size_of_records(pool).await;
    let store = SqlxStore::new(pool.clone());
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let store = store.clone();
        workers.spawn(async move {
            for number in 0..records / WORKERS {
                live(&store, worker * records + number).await;
            }
        });
    }
    workers.join_all().await;
    for (sql, when, goal) in [
        (DB::TIDY, "after claim, completion and VACUUM", lived),
        (DB::PACK, "packed", packed),
    ] {
        let mut conn = pool.acquire().await.expect("a connection");
        for statement in sql {
            DB::run(&mut conn, statement).await.expect("it is tidied");
        }
        drop(conn);
        let size = DB::size_of_records(pool).await - empty;
        bench.report.add(Figure::new(
            format!("{}, a record {when}", DB::TITLE),
            "bytes",
            Estimate::counted(size as f64 / records as f64),
            goal,
        ));
    }
    pool.close().await;
}

const WORKERS: usize = 16;

/// Claims a key and completes it.
async fn live<DB: BenchDb>(store: &SqlxStore<DB>, number: usize) {
    let id = RecordId {
        owner: Owner::new("account-7f3a").expect("an owner"),
        operation: Operation::from_static("publish"),
        key: IdempotencyKey::from_text(&fresh_key()).expect("a key"),
    };
    let fingerprint = format!("hs1:{:032x}{:032x}", fastrand::u128(..), fastrand::u128(..));
    let claim = Claim::new(id, Fingerprint::from_stored(&fingerprint));
    store.claim(&claim).await.expect("a new key");
    let tx = store.lend(Lease::claimed(claim.clone()));
    let headers = format!("content-type: application/json\nlocation: /posts/{number}\n");
    let body: Vec<u8> = (0..100).map(|_| fastrand::u8(..)).collect();
    let response = StoredResponse::kept(StatusCode::CREATED, headers, Bytes::from(body))
        .with_resource_ref(Some(ResourceRef::new(number as u64)));
    let completion = store.complete(&tx, &claim, &response).await;
    assert!(
        matches!(completion, Completion::Committed),
        "{completion:?}"
    );
}
