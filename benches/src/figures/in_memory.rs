//! What the layer itself costs: its processor time, its allocations, and its memory.

use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure as count};
use axum::Router;
use bytes::Bytes;
use http::StatusCode;
use rustix::time::{ClockId, clock_gettime};
use sqlx::Postgres;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::Bench;
use crate::report::{Figure, Goal};
use benches::load::{fresh_key, request};
use benches::post::draft;
use benches::stats::Estimate;
use benches::subject::{self, Subject, WAITING};

/// Requests in one half of a pair: so few that the memory of the last store serves the next one, and
/// no page is asked of the system.
const REQUESTS: usize = 500;

/// Requests that are in flight at once.
const IN_FLIGHT: usize = 10_000;

/// What the layer adds to a handler that writes nothing, on the store in memory.
pub(crate) fn measure(bench: &mut Bench) {
    // They are short.
    let pairs = 5 * bench.turns().rounds;
    let (times, allocations) = alone(move || {
        let runtime = runtime();
        let body = draft(1024);
        let time = |layered| {
            let app = subject::in_memory(layered);
            let before = thread_time();
            runtime.block_on(send_all(&app, &body));
            (thread_time() - before).as_secs_f64() * 1e6 / REQUESTS as f64
        };
        let allocations = |layered| {
            let app = subject::in_memory(layered);
            let counted = count(|| runtime.block_on(send_all(&app, &body)));
            counted.count_total as f64 / REQUESTS as f64
        };
        // Warms up.
        for layered in [true, false] {
            time(layered);
        }
        let times: Vec<f64> = (0..pairs)
            .map(|pair| {
                let first = time(pair % 2 == 0);
                let second = time(pair % 2 == 1);
                if pair % 2 == 0 {
                    first - second
                } else {
                    second - first
                }
            })
            .collect();
        (times, allocations(true) - allocations(false))
    });
    bench.report.add(Figure::new(
        "memory store, 1 KiB JSON: processor time for a request",
        "us",
        Estimate::of(&times),
        Goal::AtMost(5.0),
    ));
    bench.report.add(Figure::new(
        "memory store, 1 KiB JSON: allocations for a request",
        "",
        Estimate::counted(allocations),
        Goal::AtMost(25.0),
    ));
}

/// What requests take that wait in their handlers.
pub(crate) async fn in_flight(bench: &mut Bench) {
    let mut live = Vec::new();
    for subject in [Subject::Bare, Subject::Ours] {
        let options = bench.postgres.create().await;
        let engine = &bench.postgres;
        live.push(alone(|| {
            let runtime = runtime();
            let pool = runtime.block_on(engine.pool(options, 4));
            let app = subject.app::<Postgres>(&pool);
            let live = waiting_bytes(&runtime, &app.expect("every database has it"));
            runtime.block_on(pool.close());
            live
        }));
    }
    bench.report.add(Figure::new(
        format!("PostgreSQL, memory beyond bare, each of {IN_FLIGHT} in flight"),
        "KiB",
        Estimate::counted((live[1] - live[0]) / IN_FLIGHT as f64 / 1024.0),
        Goal::AtMost(20.0),
    ));
}

/// Runs on a thread of its own, where everything is counted that it does.
fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let on_thread = || thread::scope(|scope| scope.spawn(work).join());
    match tokio::task::block_in_place(on_thread) {
        Ok(done) => done,
        Err(panic) => resume_unwind(panic),
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The bytes that are live while all requests wait in their handlers.
fn waiting_bytes(runtime: &Runtime, app: &Router) -> f64 {
    let body = draft(1024);
    WAITING.store(0, Ordering::SeqCst);
    let mut requests = JoinSet::new();
    let info: AllocationInfo = count(|| {
        runtime.block_on(async {
            for _ in 0..IN_FLIGHT {
                // Each with a body of its own.
                let body = Bytes::copy_from_slice(&body);
                let request = request(&body, &fresh_key(), None, true).map(axum::body::Body::new);
                requests.spawn(app.clone().oneshot(request));
            }
            while WAITING.load(Ordering::SeqCst) < IN_FLIGHT {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    });
    runtime.block_on(requests.shutdown());
    info.bytes_current as f64
}

async fn send_all(app: &Router, body: &Bytes) {
    for _ in 0..REQUESTS {
        let request = request(body, &fresh_key(), None, false).map(axum::body::Body::new);
        let Ok(answer) = app.clone().oneshot(request).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        axum::body::to_bytes(answer.into_body(), usize::MAX)
            .await
            .expect("a body");
    }
}
