//! However many arrivals one key has, its handler runs once.

use end_to_end::{Answer, Client, Server, World, effects_app, on_every_database};
use http::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;

on_every_database! {
    /// R31, R50, R53: of fifty arrivals at once, one runs; the others are told to wait, or get its
    /// result.
    async fn fifty_arrivals_at_once_run_once<D>() {
        let world = World::<D>::new().await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);
        let act = json!({"note": "once", "wait_ms": 200});

        let mut arrivals = JoinSet::new();
        for _ in 0..50 {
            let (client, act) = (client.clone(), act.clone());
            arrivals.spawn(async move { client.post("/effects", "k", &act).await });
        }
        let answers: Vec<Answer> = arrivals.join_all().await;

        assert_eq!(world.effects("once").await, 1);
        let (made, told): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == StatusCode::CREATED);
        let first: Vec<_> = made.iter().filter(|answer| !answer.is_replay()).collect();
        assert_eq!(first.len(), 1, "one answer is the handler's own");
        assert!(made.iter().all(|answer| answer.body == first[0].body));
        for answer in told {
            assert_eq!(answer.status, StatusCode::CONFLICT, "{answer:?}");
            assert_eq!(answer.problem(), "in-progress");
            assert_eq!(answer.headers["retry-after"], "1");
            assert_eq!(answer.json()["retryable"], true);
        }
        world.end().await;
    }

    /// R11: another owner, and another operation, run on their own with the same key.
    async fn owners_and_operations_are_apart<D>() {
        let world = World::<D>::new().await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);
        let act = json!({"note": "apart"});

        let first = client.post("/effects", "k", &act).await;
        let other = client.post("/others", "k", &act).await;
        let bob = client.request(http::Method::POST, "/effects").header("idempotency-key", "k");
        let headers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("x-owner"),
            http::HeaderValue::from_static("bob"),
        )]);
        let bob = Answer::of(bob.headers(headers).json(&act)).await;

        for answer in [first, other, bob] {
            assert_eq!(answer.status, StatusCode::CREATED);
            assert!(!answer.is_replay());
        }
        assert_eq!(world.effects("apart").await, 3);
        world.end().await;
    }
}
