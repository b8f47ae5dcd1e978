//! Handlers that wait hold no connection.

use std::time::{Duration, Instant};

use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use sqlx::Postgres;
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tower_idempotency::{IdempotencyLayer, Owner, SqlxStore, Tx};

use super::Bench;
use crate::report::{Figure, Goal};
use benches::database::BenchDb as _;
use benches::load::{fresh_key, request};
use benches::post::{Draft, draft};
use benches::stats::Estimate;
use benches::subject::authenticated;

const REQUESTS: usize = 500;

pub(crate) async fn measure(bench: &mut Bench) {
    let pool = Postgres::database(&bench.postgres, 5).await;
    let handler = async |tx: Tx<Postgres>, owner: Owner, Json(draft): Json<Draft>| {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut conn = tx.acquire().await.map_err(|error| error.into_response())?;
        Postgres::insert(&mut conn, owner.as_str(), &draft)
            .await
            .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
        Ok::<_, Response>(StatusCode::CREATED)
    };
    let layer = IdempotencyLayer::with_store(SqlxStore::new(pool.clone()))
        .operation("publish")
        .max_in_flight(REQUESTS);
    let app = authenticated(Router::new().route("/posts", post(handler).layer(layer)));
    let body = draft(1024);
    let started = Instant::now();
    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS {
        let request = request(&body, &fresh_key(), None, false).map(axum::body::Body::new);
        requests.spawn(app.clone().oneshot(request));
    }
    for answer in requests.join_all().await {
        let Ok(answer) = answer;
        assert_eq!(answer.status(), StatusCode::CREATED);
    }
    bench.report.add(Figure::new(
        format!("PostgreSQL, {REQUESTS} handlers wait 2 s on a pool of 5"),
        "s",
        Estimate::counted(started.elapsed().as_secs_f64()),
        Goal::AtMost(4.0),
    ));
    pool.close().await;
}
