//! What does not end in 2xx leaves nothing, and its key is free.

use end_to_end::{Answer, Client, Server, World, effects_app, on_every_database};
use http::StatusCode;
use serde_json::json;

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
}
