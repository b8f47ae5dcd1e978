//! Sealed results on a real database, over real sockets.

use bytes::Bytes;
use end_to_end::{Client, Server, World};
use serde_json::json;
use sqlx::Sqlite;
use tower_idempotency::{Codec as _, IdempotencyKey, Operation, Owner, RecordId, StoredContent};

use crate::app;
use crate::sealed::Sealed;

/// A server with that key, and its client: the owner is `ann`.
async fn serve(world: &World<Sqlite>, key: u8) -> (Server, Client) {
    app::make_table(&world.pool).await.expect("a table");
    let server = Server::start(app::router(world.layer().codec(Sealed::new([key; 32])))).await;
    let client = Client::new(&server);
    (server, client)
}

async fn tokens(world: &World<Sqlite>) -> i64 {
    let sql = "SELECT count(*) FROM token";
    sqlx::query_scalar(sql)
        .fetch_one(&world.pool)
        .await
        .expect("a number")
}

fn id(owner: &str, key: &str) -> RecordId {
    RecordId {
        owner: Owner::new(owner).expect("an owner"),
        operation: Operation::from_static("make-token"),
        key: IdempotencyKey::from_text(key).expect("a key"),
    }
}

/// R46: what is in the database is not the result, and a replay is.
#[tokio::test]
async fn the_database_has_no_plain_text() {
    let world = World::<Sqlite>::new().await;
    let (_server, client) = serve(&world, 1).await;
    let first = client
        .post("/tokens", "k", &json!({"name": "laptop"}))
        .await;
    let token = first.json()["token"].as_str().expect("a token").to_owned();

    let sql = "SELECT headers, body FROM tower_idempotency_record WHERE key = 'k'";
    let (headers, body): (Vec<u8>, Vec<u8>) = sqlx::query_as(sql)
        .fetch_one(&world.pool)
        .await
        .expect("a record");
    for (stored, plain) in [
        (&body, &token[..]),
        (&body, "token"),
        (&headers, "application/json"),
        (&headers, "content-type"),
    ] {
        assert_eq!(stored[0], 1, "the version");
        let found = stored
            .windows(plain.len())
            .any(|window| window == plain.as_bytes());
        assert!(!found, "{plain} is in the database");
    }
    let second = client
        .post("/tokens", "k", &json!({"name": "laptop"}))
        .await;
    assert!(second.is_replay());
    assert_eq!(second.body, first.body);
    assert_eq!(second.headers["content-type"], "application/json");
    assert_eq!(tokens(&world).await, 1);
    world.end().await;
}

/// R46: with another key a result is unreadable: an error that says so, and no second run.
#[tokio::test]
async fn another_key_reads_nothing() {
    let world = World::<Sqlite>::new().await;
    let (_server, client) = serve(&world, 1).await;
    let first = client
        .post("/tokens", "k", &json!({"name": "laptop"}))
        .await;
    let (_other, other) = serve(&world, 2).await;
    for _ in 0..2 {
        let unreadable = other.post("/tokens", "k", &json!({"name": "laptop"})).await;
        assert_eq!(unreadable.status.as_u16(), 500);
        assert_eq!(unreadable.problem(), "record-unreadable");
        assert!(!unreadable.is_replay());
    }
    assert_eq!(tokens(&world).await, 1);
    assert_eq!(
        client
            .post("/tokens", "k", &json!({"name": "laptop"}))
            .await
            .body,
        first.body
    );
    world.end().await;
}

/// R46: a result that was moved to another record is unreadable there.
#[tokio::test]
async fn a_moved_result_cannot_be_read() {
    let world = World::<Sqlite>::new().await;
    let (_server, client) = serve(&world, 1).await;
    for key in ["mine", "yours"] {
        client
            .post("/tokens", key, &json!({"name": "laptop"}))
            .await;
    }
    let moving = "UPDATE tower_idempotency_record AS mine SET (headers, body) = \
        (SELECT headers, body FROM tower_idempotency_record WHERE key = 'yours') WHERE key = 'mine'";
    sqlx::query(moving)
        .execute(&world.pool)
        .await
        .expect("a record");
    let moved = client
        .post("/tokens", "mine", &json!({"name": "laptop"}))
        .await;
    assert_eq!(moved.problem(), "record-unreadable");
    assert!(
        client
            .post("/tokens", "yours", &json!({"name": "laptop"}))
            .await
            .is_replay()
    );
    assert_eq!(tokens(&world).await, 2);
    world.end().await;
}

/// R46: every part of the identity, the column, the version and each byte are sealed; two seals of
/// one result differ.
#[test]
fn what_is_sealed() {
    let sealed = Sealed::new([1; 32]);
    let content = StoredContent {
        headers: Bytes::from_static(b"a: b\n"),
        body: Bytes::new(),
    };
    let stored = sealed
        .encode(&id("ab", "c"), content.clone())
        .expect("sealed");
    assert_eq!(
        sealed
            .decode(&id("ab", "c"), stored.clone())
            .expect("opened"),
        content
    );
    assert_ne!(
        sealed.encode(&id("ab", "c"), content).expect("sealed"),
        stored
    );

    assert!(sealed.decode(&id("a", "bc"), stored.clone()).is_err());
    assert!(sealed.decode(&id("ab", "d"), stored.clone()).is_err());
    let swapped = StoredContent {
        headers: stored.body.clone(),
        body: stored.headers.clone(),
    };
    assert!(sealed.decode(&id("ab", "c"), swapped).is_err());
    for n in 0..stored.headers.len() {
        let mut changed = stored.headers.to_vec();
        changed[n] ^= 1;
        let changed = StoredContent {
            headers: changed.into(),
            ..stored.clone()
        };
        assert!(sealed.decode(&id("ab", "c"), changed).is_err(), "byte {n}");
        let cut = StoredContent {
            headers: stored.headers.slice(..n),
            ..stored.clone()
        };
        assert!(sealed.decode(&id("ab", "c"), cut).is_err(), "{n} bytes");
    }
}
