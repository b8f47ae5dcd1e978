//! An operation that was renamed.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Answer, Client, Server, TestDb, World, act, on_every_database};
use serde_json::json;
use std::time::Duration;
use tokio::sync::Semaphore;
use tower_idempotency::{IdempotencyLayer, SqlxStore, Tx};

use crate::support::keyed;

fn app<D: TestDb>(layer: IdempotencyLayer<SqlxStore<D>>) -> Router {
    Router::new().route("/", post(act::<D>).layer(layer))
}

on_every_database! {
    /// R6: the record of an earlier name answers: with its result, or with a conflict.
    async fn an_earlier_name_answers<D>() {
        let world = World::<D>::new().await;
        let before = Server::start(app(world.layer().operation("old"))).await;
        let after = Server::start(app(world.layer().operation("new").operation_alias("older").operation_alias("old"))).await;
        let (before, after) = (Client::new(&before), Client::new(&after));
        let act = json!({"note": "x"});

        let first = before.post("/", "k", &act).await;
        let second = after.post("/", "k", &act).await;
        assert!(second.is_replay());
        assert_eq!(second.body, first.body);
        assert_eq!(after.post("/", "k", &json!({"note": "y"})).await.problem(), "key-reused");
        assert_eq!(world.records("k", "claimed").await, 0, "the claim under the new name is freed");

        assert_eq!(after.post("/", "fresh", &act).await.status, StatusCode::CREATED);
        assert!(after.post("/", "fresh", &act).await.is_replay());
        assert_eq!(world.effects("x").await, 2);
        world.end().await;
    }

    /// R6, R32: a living claim under the earlier name is in progress; a stale one is released
    /// before the handler runs, so that its owner cannot commit any more.
    async fn an_earlier_claim_is_honoured<D>() {
        let world = World::<D>::new().await;
        let (entered, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let gates = (Arc::clone(&entered), Arc::clone(&leave));
        let slow = move |tx: Tx<D>| {
            let (entered, leave) = gates.clone();
            async move {
                entered.add_permits(1);
                leave.acquire().await.expect("open").forget();
                let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
                D::insert(&mut conn, "x").await.map_err(|_| StatusCode::CONFLICT.into_response())?;
                Ok::<_, Response>(StatusCode::CREATED)
            }
        };
        let router = |layer| Router::new().route("/", post(slow.clone()).layer(layer));
        let before = Server::start(router(world.layer().operation("old"))).await;
        let after = Server::start(router(world.layer().operation("new").operation_alias("old"))).await;
        let (before, after) = (Client::new(&before), Client::new(&after));

        let late = tokio::spawn(Answer::of(keyed(&before, "/", "k")));
        entered.acquire().await.expect("open").forget();
        assert_eq!(Answer::of(keyed(&after, "/", "k")).await.problem(), "in-progress");

        world.age(Duration::from_secs(301)).await;
        let retried = tokio::spawn(Answer::of(keyed(&after, "/", "k")));
        entered.acquire().await.expect("open").forget();
        assert_eq!(world.records("k", "claimed").await, 1, "the stale one is gone");
        leave.add_permits(2);
        assert_eq!(retried.await.expect("an answer").status, StatusCode::CREATED);
        assert_eq!(late.await.expect("an answer").status, StatusCode::CONFLICT);
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }
}
