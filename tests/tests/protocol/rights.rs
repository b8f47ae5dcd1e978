//! Rights that are asked for before a replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::{Response, StatusCode, request, response};
use axum::routing::post;
use end_to_end::{Answer, Server, World, act, on_every_database};
use serde_json::json;

use crate::support::{clients, keyed, kind};

on_every_database! {
    /// R66: a refusal is answered in the place of the result, with the record as it was; once it is
    /// allowed again, the result is there. Only replays are asked for.
    async fn a_refused_replay<D>() {
        let world = World::<D>::new().await;
        let allowed = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&allowed);
        let refuse = move |request: &request::Parts, stored: &response::Parts| {
            assert_eq!(stored.status, StatusCode::CREATED);
            assert_eq!(stored.headers["location"], "/effects/x");
            assert_eq!(request.uri.path(), "/");
            let may = asked.load(Ordering::SeqCst) || request.headers.contains_key("x-admin");
            (!may).then(|| {
                let mut refusal = Response::new(Bytes::from_static(b"your rights were revoked"));
                *refusal.status_mut() = StatusCode::FORBIDDEN;
                refusal
            })
        };
        let layer = world.layer().operation("effects").authorize_replay_with(refuse);
        let server = Server::start(Router::new().route("/", post(act::<D>).layer(layer))).await;
        for (key, client) in clients(&server) {
            let send = || Answer::of(keyed(&client, "/", key).json(&json!({"note": "x"})));
            allowed.store(false, Ordering::SeqCst);
            let first = send().await;
            assert_eq!(kind(&first), "fresh", "it is the result's own client");
            for _ in 0..2 {
                let refused = send().await;
                assert_eq!(refused.status, StatusCode::FORBIDDEN);
                assert_eq!(refused.body, "your rights were revoked");
                assert!(!refused.is_replay() && !refused.headers.contains_key("location"));
                assert_eq!(world.records(key, "completed").await, 1);
            }
            let admin = keyed(&client, "/", key).header("x-admin", "1").json(&json!({"note": "x"}));
            assert_eq!(kind(&Answer::of(admin).await), "replay");
            // A conflict is no replay: nothing is asked.
            let other = Answer::of(keyed(&client, "/", key).json(&json!({"note": "y"}))).await;
            assert_eq!(other.problem(), "key-reused");
            allowed.store(true, Ordering::SeqCst);
            let allowed = send().await;
            assert_eq!(kind(&allowed), "replay");
            assert_eq!(allowed.body, first.body);
        }
        assert_eq!(world.effects("x").await, 2);
        world.end().await;
    }
}
