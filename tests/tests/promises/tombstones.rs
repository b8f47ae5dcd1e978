//! What was deleted stays deleted.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::routing::{delete, post};
use axum::{Json, Router};
use end_to_end::{Act, Answer, Client, Server, TestDb, World, on_every_database};
use serde_json::json;
use tower_idempotency::{Operation, Owner, ResourceRef, TombstoneResource, Tx, TxError};

const MAKE: Operation = Operation::from_static("make");

async fn make<D: TestDb>(tx: Tx<D>, Json(act): Json<Act>) -> Result<StatusCode, TxError> {
    let mut conn = tx.acquire().await?;
    D::insert(&mut conn, &act.note).await.expect("an insert");
    tx.made(ResourceRef::new(&act.note));
    Ok(StatusCode::CREATED)
}

/// Deletes, buries, and then answers with the status that it is told.
async fn remove<D: TestDb>(
    tx: Tx<D>,
    owner: Owner,
    Path((note, status)): Path<(String, u16)>,
) -> Result<(StatusCode, String), TxError> {
    let mut conn = tx.acquire().await?;
    D::run(&mut conn, "DELETE FROM effect")
        .await
        .expect("a deletion");
    let held = tx.acquire().await;
    assert!(
        held.is_err_and(|error| error.is_held()),
        "one guard at a time"
    );
    drop(conn);
    let resource_ref = ResourceRef::new(note);
    let buried = tx
        .tombstone_resource(TombstoneResource {
            owner,
            operation: MAKE,
            resource_ref,
        })
        .await?;
    Ok((
        StatusCode::from_u16(status).expect("a status"),
        buried.to_string(),
    ))
}

on_every_database! {
    /// R35: a deleted resource answers 410 to every later arrival of the key that made it, whatever
    /// its body, if and only if the deletion was committed.
    async fn a_deleted_resource_is_gone<D>() {
        let world = World::<D>::new().await;
        let layer = world.layer();
        let app = Router::new()
            .route("/things", post(make::<D>).layer(layer.clone().operation(MAKE)))
            .route(
                "/things/{note}/{status}",
                delete(remove::<D>).layer(layer.clone().operation("remove").methods([Method::DELETE])),
            );
        let server = Server::start(app).await;
        let client = Client::new(&server);
        let thing = json!({"note": "t1"});
        let removal = |path: &str, key: &str| {
            Answer::of(client.request(Method::DELETE, path).header("idempotency-key", key))
        };

        assert_eq!(client.post("/things", "k", &thing).await.status, StatusCode::CREATED);
        let failed = removal("/things/t1/500", "d1").await;
        assert_eq!((failed.status.as_u16(), &failed.body[..]), (500, &b"1"[..]));
        assert!(client.post("/things", "k", &thing).await.is_replay(), "the deletion was rolled back");

        let removed = removal("/things/t1/200", "d1").await;
        assert_eq!((removed.status.as_u16(), &removed.body[..]), (200, &b"1"[..]));
        for body in [thing, json!({"note": "t2"})] {
            let gone = client.post("/things", "k", &body).await;
            assert_eq!((gone.status, gone.problem()), (StatusCode::GONE, "gone".to_owned()));
            assert!(!gone.headers.contains_key("retry-after"));
        }
        assert_eq!(world.records("k", "tombstone").await, 1);
        assert_eq!(world.effects("t1").await + world.effects("t2").await, 0);
        assert!(removal("/things/t1/200", "d1").await.is_replay());
        world.end().await;
    }
}
