//! What does not end in 2xx leaves nothing, and its key is free.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Answer, Client, Server, TestDb, World, effects_app, on_every_database};
use http::StatusCode;
use serde_json::json;
use sqlx::{Postgres, Sqlite};
use tower_idempotency::Tx;

on_every_database! {
    /// R54: after a 500 the effect is gone, and a retry runs, even with a corrected body.
    async fn a_failed_request_can_be_retried<D>() {
        let world = World::<D>::new().await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);

        for status in [500_u16, 422, 302] {
            let failed = client.post("/effects", "k", &json!({"note": "x", "answer": status})).await;
            assert_eq!(failed.status.as_u16(), status);
            assert!(!failed.is_replay());
            assert_eq!(world.effects("x").await, 0, "rolled back after {status}");
            assert_eq!(world.records("k", "claimed").await, 0, "freed after {status}");
        }
        let retried = client.post("/effects", "k", &json!({"note": "x"})).await;
        assert_eq!(retried.status, StatusCode::CREATED);
        assert!(!retried.is_replay());
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }

    /// R55: a panic leaves nothing, unwinds on to the connection, and a retry runs.
    async fn a_panic_can_be_retried<D>() {
        let world = World::<D>::new().await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);

        let panic = client.request(http::Method::POST, "/effects").header("idempotency-key", "k");
        let panic = Answer::try_of(panic.json(&json!({"note": "x", "panic": true}))).await;
        assert!(panic.is_err(), "without a layer that catches panics, the connection breaks off");
        assert_eq!(world.effects("x").await, 0);
        assert_eq!(world.records("k", "claimed").await, 0);

        let retried = client.post("/effects", "k", &json!({"note": "x"})).await;
        assert_eq!(retried.status, StatusCode::CREATED);
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }

    /// R54: when a failure is answered, its roll-back has happened: what it had locked is free.
    async fn a_failure_has_let_go_when_it_is_answered<D>() {
        let world = World::<D>::new().await;
        let handler = |tx: Tx<D>| async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            let sql = "UPDATE effect SET note = 'x' WHERE note = 'shared'";
            D::run(&mut conn, sql).await.expect("nobody holds it");
            Ok::<_, Response>(StatusCode::IM_A_TEAPOT)
        };
        let server = Server::start(Router::new().route("/", post(handler).layer(world.layer()))).await;
        let client = Client::new(&server);
        let other = D::connect(&world.database, 1).await;
        let mut conn = other.acquire().await.unwrap();
        D::insert(&mut conn, "shared").await.unwrap();
        let at_once = if D::NAME == "SQLite" {
            D::run(&mut conn, "PRAGMA busy_timeout = 0").await.unwrap();
            "BEGIN IMMEDIATE; ROLLBACK"
        } else {
            "BEGIN; SELECT note FROM effect FOR UPDATE NOWAIT; ROLLBACK"
        };
        for key in 0..30 {
            let answer = client.post("/", &key.to_string(), &json!({})).await;
            assert_eq!(answer.status, StatusCode::IM_A_TEAPOT, "{answer:?}");
            D::run(&mut conn, at_once).await.expect("it is free");
        }
        drop(conn);
        other.close().await;
        assert_eq!(world.effects("x").await, 0);
        world.end().await;
    }
}

/// Makes a row whose constraint is checked at COMMIT.
async fn refused_at_commit<D: TestDb>() {
    let world = World::<D>::new().await;
    let mut conn = world.pool.acquire().await.unwrap();
    let tables = "CREATE TABLE parent (id integer PRIMARY KEY); \
                  CREATE TABLE child (id integer REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)";
    D::run(&mut conn, tables).await.unwrap();
    let handler = |tx: Tx<D>| async move {
        let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
        D::insert(&mut conn, "x").await.expect("an insert");
        let child = "INSERT INTO child VALUES (1)";
        D::run(&mut conn, child)
            .await
            .expect("it is not checked yet");
        Ok::<_, Response>(StatusCode::CREATED)
    };
    let server = Server::start(Router::new().route("/", post(handler).layer(world.layer()))).await;
    let client = Client::new(&server);
    let answer = client.post("/", "k", &json!({})).await;
    assert_eq!(answer.problem(), "commit-failed");
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(world.effects("x").await, 0);
    assert_eq!(world.records("k", "claimed").await, 0, "the key is free");
    let parent = "INSERT INTO parent VALUES (1)";
    D::run(&mut conn, parent).await.unwrap();
    drop(conn);
    let retried = client.post("/", "k", &json!({})).await;
    assert_eq!(retried.status, StatusCode::CREATED);
    assert_eq!(world.effects("x").await, 1);
    world.end().await;
}

/// R50, R61: a deferred constraint fails at COMMIT, when completion has succeeded. On PostgreSQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deferred_constraint_fails_on_postgres() {
    refused_at_commit::<Postgres>().await;
}

/// R50, R61: likewise on SQLite, which leaves the transaction open then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deferred_constraint_fails_on_sqlite() {
    refused_at_commit::<Sqlite>().await;
}
