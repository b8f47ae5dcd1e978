//! Round trips to PostgreSQL, seen at a proxy.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use http::StatusCode;
use sqlx::{PgPool, Postgres};
use test_support::{Proxy, Traffic};
use tower::ServiceExt as _;
use tower_idempotency::{IdempotencyLayer, Owner, SqlxStore, Tx};

use super::Bench;
use crate::report::{Figure, Goal};
use benches::database::BenchDb as _;
use benches::load::{fresh_key, request};
use benches::post::{Draft, draft};
use benches::stats::Estimate;
use benches::subject::{Subject, authenticated};

/// A round trip through the proxy.
const ROUND_TRIP: Duration = Duration::from_millis(50);

/// The same request this often, of which the quickest counts: what else the machine does only adds.
const TRIES: usize = 4;

pub(crate) async fn measure(bench: &mut Bench) {
    let proxy = Proxy::start(bench.postgres.server().address()).await;
    let options = bench.postgres.create().await;
    let options = bench.postgres.via(&options, proxy.address());
    let pool = bench.postgres.pool(options, 4).await;

    let entered = Arc::new(Mutex::new(Instant::now()));
    let ours = authenticated(instrumented(&pool, Arc::clone(&entered)));
    let bare = Subject::Bare.app(&pool).expect("every database has it");
    let body = draft(1024);
    let key = fresh_key();
    // Prepares the statements on every connection.
    for _ in 0..12 {
        send(&ours, &body, &fresh_key()).await;
        send(&bare, &body, &fresh_key()).await;
        send(&ours, &body, &key).await;
        send(&ours, &draft(512), &key).await;
    }
    proxy.set_both(Traffic::Delay(ROUND_TRIP / 2));

    let mut seen = Vec::new();
    for (app, body, replayed) in [
        (&bare, &body, false),
        (&ours, &body, false),
        (&ours, &body, true),
        (&ours, &draft(512), true),
    ] {
        let mut best = [u32::MAX; 3];
        for _ in 0..TRIES {
            quiet(&proxy).await;
            let (before, started) = (proxy.round_trips(), Instant::now());
            let key = if replayed { key.clone() } else { fresh_key() };
            send(app, body, &key).await;
            let all = trips(started.elapsed());
            let first = trips(entered.lock().expect("no panic").duration_since(started));
            quiet(&proxy).await;
            let counted = u32::try_from(proxy.round_trips() - before).unwrap_or(u32::MAX);
            best = [best[0].min(first), best[1].min(all), best[2].min(counted)];
        }
        seen.push(best.map(f64::from));
    }
    proxy.set_both(Traffic::Pass);
    let [bare, new, replay, conflict] = seen[..] else {
        return;
    };
    let mut add = |name: &str, value, goal| {
        let name = format!("PostgreSQL, round trips {name}");
        bench
            .report
            .add(Figure::new(name, "", Estimate::counted(value), goal));
    };
    add("before a new key's handler", new[0], Goal::AtMost(1.0));
    add("for a replay", replay[1], Goal::AtMost(1.0));
    add("for a 409", conflict[1], Goal::AtMost(1.0));
    add(
        "that a new key adds over bare",
        new[1] - bare[1],
        Goal::AtMost(2.0),
    );
    add(
        "that it adds, also after the answer",
        new[2] - bare[2],
        Goal::Stated,
    );
    pool.close().await;
}

/// The layer, around a handler that says when it was entered.
fn instrumented(pool: &PgPool, entered: Arc<Mutex<Instant>>) -> Router {
    let handler = move |tx: Tx<Postgres>, owner: Owner, Json(draft): Json<Draft>| {
        let entered = Arc::clone(&entered);
        async move {
            *entered.lock().expect("no panic") = Instant::now();
            let mut conn = tx.acquire().await.map_err(|error| error.into_response())?;
            let id = Postgres::insert(&mut conn, owner.as_str(), &draft).await;
            id.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
            Ok::<_, Response>(StatusCode::CREATED)
        }
    };
    let layer = IdempotencyLayer::with_store(SqlxStore::new(pool.clone())).operation("publish");
    Router::new().route("/posts", post(handler).layer(layer))
}

async fn send(app: &Router, body: &Bytes, key: &str) {
    let request = request(body, key, None, false).map(axum::body::Body::new);
    let Ok(_) = app.clone().oneshot(request).await;
}

/// How many whole round trips fit into that time.
fn trips(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / ROUND_TRIP.as_millis()).unwrap_or(u32::MAX)
}

/// Waits until connections that went back have pinged.
async fn quiet(proxy: &Proxy) {
    loop {
        let before = proxy.round_trips();
        tokio::time::sleep(3 * ROUND_TRIP).await;
        if proxy.round_trips() == before {
            return;
        }
    }
}
