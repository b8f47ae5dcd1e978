//! What a handler's statements do to its transaction, though they look harmless.

use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Client, Server, TestDb, World, on_every_database};
use serde_json::json;
use sqlx::{Connection as _, Postgres};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower_idempotency::Tx;

const FAILED: StatusCode = StatusCode::IM_A_TEAPOT;

on_every_database! {
    /// R50, R64: a nested begin that is cancelled may have rolled everything back, in sqlx 0.9, and what
    /// follows may be in autocommit. The answer is 2xx only where all of it is committed.
    async fn a_cancelled_nested_begin_makes_no_false_success<D>() {
        let world = World::<D>::with_connections(1).await;
        let handler = |tx: Tx<D>| async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            D::insert(&mut conn, "x").await.expect("an insert");
            // Polled once.
            drop(timeout(Duration::ZERO, conn.begin()).await);
            D::insert(&mut conn, "x").await.map_err(|_| FAILED.into_response())?;
            Ok::<_, Response>(StatusCode::CREATED)
        };
        let server = Server::start(Router::new().route("/", post(handler).layer(world.layer()))).await;
        let client = Client::new(&server);
        for key in ["a", "b", "c"] {
            let before = world.effects("x").await;
            let answer = client.post("/", key, &json!({})).await;
            let made = world.effects("x").await - before;
            let completed = world.records(key, "completed").await;
            match answer.status {
                StatusCode::CREATED => {
                    assert_eq!((made, completed), (2, 1));
                    assert!(client.post("/", key, &json!({})).await.is_replay());
                }
                FAILED => assert_eq!((made, completed), (0, 0)),
                _ => {
                    assert_eq!(answer.problem(), "transaction-lost");
                    assert!(made < 2);
                    let again = client.post("/", key, &json!({})).await;
                    assert_eq!(again.problem(), "outcome-unknown");
                }
            }
            assert_eq!(world.records(key, "claimed").await, 0);
        }
        world.end().await;
    }

    /// R50: handlers that read and then write, all at once, are no conflict under the isolation that
    /// the database has by default.
    async fn reading_before_writing_is_no_conflict<D>() {
        let world = World::<D>::new().await;
        let handler = |tx: Tx<D>| async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            D::run(&mut conn, "SELECT count(*) FROM effect").await.expect("a count");
            tokio::time::sleep(Duration::from_millis(5)).await;
            D::insert(&mut conn, "x").await.map_err(|_| FAILED.into_response())?;
            Ok::<_, Response>(StatusCode::CREATED)
        };
        let server = Server::start(Router::new().route("/", post(handler).layer(world.layer()))).await;
        let client = Client::new(&server);
        let mut arrivals = JoinSet::new();
        for key in 0..20 {
            let client = client.clone();
            arrivals.spawn(async move { client.post("/", &key.to_string(), &json!({})).await });
        }
        for answer in arrivals.join_all().await {
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        }
        assert_eq!(world.effects("x").await, 20);
        world.end().await;
    }
}

async fn surprise(tx: Tx<Postgres>, deed: String) -> Result<StatusCode, Response> {
    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
    let run = async |conn: &mut sqlx::PgConnection, sql| Postgres::run(conn, sql).await;
    match deed.as_str() {
        "search-path" => {
            Postgres::insert(&mut conn, "x").await.expect("an insert");
            let hide = "SET LOCAL search_path = pg_catalog";
            run(&mut conn, hide).await.expect("a setting");
        }
        "role" => {
            Postgres::insert(&mut conn, "x").await.expect("an insert");
            let role = "SET LOCAL ROLE pg_monitor";
            run(&mut conn, role).await.expect("a role without rights");
        }
        // The transaction is aborted; sqlx rolls back all of it where its savepoint fails.
        _ => {
            let wrong = "INSERT INTO effect (note) VALUES (NULL)";
            assert!(run(&mut conn, wrong).await.is_err());
            assert!(conn.begin().await.is_err());
            Postgres::insert(&mut conn, "x")
                .await
                .map_err(|_| FAILED.into_response())?;
        }
    }
    Ok(StatusCode::CREATED)
}

/// R50, R61, R64: on PostgreSQL a search path that hides the table of records does not matter; a
/// role that may not write to it fails at completion; and a swallowed failure with a savepoint
/// behind it, after which all is in autocommit, is no success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_transaction_make_no_false_success() {
    let world = World::<Postgres>::with_connections(1).await;
    let handler = |Path(deed): Path<String>, tx: Tx<Postgres>| surprise(tx, deed);
    let app = Router::new().route("/{deed}", post(handler).layer(world.layer()));
    let server = Server::start(app).await;
    let client = Client::new(&server);

    let hidden = client.post("/search-path", "path", &json!({})).await;
    assert_eq!(hidden.status, StatusCode::CREATED);
    assert!(
        client
            .post("/search-path", "path", &json!({}))
            .await
            .is_replay()
    );
    assert_eq!(world.effects("x").await, 1);

    let powerless = client.post("/role", "role", &json!({})).await;
    assert_eq!(powerless.problem(), "commit-failed");
    assert_eq!(world.effects("x").await, 1);
    assert_eq!(world.records("role", "claimed").await, 0, "the key is free");

    let swallowed = client.post("/savepoint", "savepoint", &json!({})).await;
    assert_eq!(swallowed.problem(), "transaction-lost");
    let after = world.effects("x").await;
    let again = client.post("/savepoint", "savepoint", &json!({})).await;
    assert_eq!(again.problem(), "outcome-unknown");
    assert_eq!(world.effects("x").await, after);
    world.end().await;
}
