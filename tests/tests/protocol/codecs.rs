//! Codecs over what is stored, whatever they do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use end_to_end::{Client, Server, TestDb, World, act, on_every_database};
use serde_json::json;
use tower_idempotency::{BoxError, Codec, IdempotencyLayer, RecordId, SqlxStore, StoredContent};

/// Turns the bits of the body over. Fails while it is told to.
#[derive(Clone, Default)]
struct Inverting {
    fails: Arc<AtomicBool>,
}

impl Inverting {
    fn turned(&self, content: StoredContent) -> Result<StoredContent, BoxError> {
        if self.fails.load(Ordering::SeqCst) {
            return Err("it was told to".into());
        }
        let body: Vec<u8> = content.body.iter().map(|byte| !byte).collect();
        Ok(StoredContent {
            body: Bytes::from(body),
            ..content
        })
    }
}

impl Codec for Inverting {
    fn encode(&self, id: &RecordId, content: StoredContent) -> Result<StoredContent, BoxError> {
        assert_eq!(id.owner.as_str(), "ann");
        self.turned(content)
    }

    fn decode(&self, id: &RecordId, content: StoredContent) -> Result<StoredContent, BoxError> {
        assert_eq!(id.operation.as_str(), "effects");
        self.turned(content)
    }
}

fn app<D: TestDb>(layer: IdempotencyLayer<SqlxStore<D>>) -> Router {
    Router::new().route("/", post(act::<D>).layer(layer.operation("effects")))
}

on_every_database! {
    /// R46: the first client gets the plain result, the store what the codec makes of it, and a
    /// replay the plain result again.
    async fn stored_is_what_the_codec_makes<D>() {
        let world = World::<D>::new().await;
        let codec = Server::start(app(world.layer().codec(Inverting::default()))).await;
        let none = Server::start(app(world.layer())).await;
        let act = json!({"note": "x"});
        let first = Client::new(&codec).post("/", "k", &act).await;
        let replay = Client::new(&codec).post("/", "k", &act).await;
        assert!(replay.is_replay());
        assert_eq!(replay.body, first.body);
        assert_eq!(replay.headers["location"], "/effects/x");

        let stored = Client::new(&none).post("/", "k", &act).await;
        let inverted: Vec<u8> = first.body.iter().map(|byte| !byte).collect();
        assert_eq!(stored.body, inverted);
        world.end().await;
    }

    /// R46, R61: a result that cannot be encoded is answered 500, rolled back and freed.
    async fn not_encoded<D>() {
        let world = World::<D>::new().await;
        let codec = Inverting::default();
        let server = Server::start(app(world.layer().codec(codec.clone()))).await;
        let client = Client::new(&server);
        codec.fails.store(true, Ordering::SeqCst);
        let failed = client.post("/", "k", &json!({"note": "x"})).await;
        assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(failed.problem(), "record-unreadable");
        assert_eq!(world.effects("x").await, 0);
        assert_eq!(world.records("k", "claimed").await, 0);

        codec.fails.store(false, Ordering::SeqCst);
        assert_eq!(client.post("/", "k", &json!({"note": "y"})).await.status, StatusCode::CREATED);
        world.end().await;
    }

    /// R46: a result that cannot be decoded is answered 500, never as it is stored, and its handler
    /// does not run again.
    async fn not_decoded<D>() {
        let world = World::<D>::new().await;
        let codec = Inverting::default();
        let server = Server::start(app(world.layer().codec(codec.clone()))).await;
        let client = Client::new(&server);
        let act = json!({"note": "x"});
        let first = client.post("/", "k", &act).await;
        codec.fails.store(true, Ordering::SeqCst);
        for _ in 0..2 {
            let unreadable = client.post("/", "k", &act).await;
            assert_eq!(unreadable.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(unreadable.problem(), "record-unreadable");
            assert!(!unreadable.is_replay());
        }
        codec.fails.store(false, Ordering::SeqCst);
        let replay = client.post("/", "k", &act).await;
        assert!(replay.is_replay());
        assert_eq!(replay.body, first.body);
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }
}
