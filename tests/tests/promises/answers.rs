//! What a later arrival gets.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::IntoResponse;
use axum::routing::post;
use end_to_end::{Client, Server, World, effects_app, on_every_database};
use http::StatusCode;
use serde_json::json;

/// Headers of every kind: kept, kept twice, never kept, and a mark that is not the layer's.
async fn ornate() -> impl IntoResponse {
    let body: Vec<u8> = (0..=255).collect();
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::LOCATION, "/things/1"),
        (header::ETAG, "\"v1\""),
        (header::LINK, "</a>; rel=\"a\""),
        (header::SET_COOKIE, "session=secret"),
        (HeaderName::from_static("x-request-id"), "first"),
        (HeaderName::from_static("idempotent-replayed"), "true"),
    ];
    let more = axum::response::AppendHeaders([(header::LINK, "</b>; rel=\"b\"")]);
    (StatusCode::ACCEPTED, headers, more, body)
}

on_every_database! {
    /// R40, R41, R42, R51: a retry gets the same status, the kept headers and the same bytes, with
    /// the mark, which the first answer never has.
    async fn a_retry_gets_the_stored_answer<D>() {
        let world = World::<D>::new().await;
        let layer = world.layer();
        let server = Server::start(Router::new().route("/", post(ornate).layer(layer))).await;
        for (key, client) in [("1", Client::new(&server)), ("2", Client::http2(&server))] {
            let first = client.post("/", key, &json!({})).await;
            assert!(!first.is_replay());
            assert_eq!(first.headers["set-cookie"], "session=secret");
            assert_eq!(first.headers["x-request-id"], "first");

            let second = client.post("/", key, &json!({})).await;
            assert!(second.is_replay());
            assert_eq!(second.status, StatusCode::ACCEPTED);
            assert_eq!(second.body, first.body);
            assert_eq!(second.body.len(), 256);
            for kept in ["content-type", "location", "etag", "link"] {
                let lines = |answer: &end_to_end::Answer| -> Vec<_> {
                    answer.headers.get_all(kept).iter().cloned().collect()
                };
                assert_eq!(lines(&second), lines(&first), "{kept}");
            }
            assert_eq!(second.headers.get_all("link").iter().count(), 2);
            assert!(!second.headers.contains_key("set-cookie"));
            assert!(!second.headers.contains_key("x-request-id"));
        }
        world.end().await;
    }

    /// R52: the key of another request is refused, and nothing runs.
    async fn another_body_is_refused<D>() {
        let world = World::<D>::new().await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);

        assert_eq!(client.post("/effects", "k", &json!({"note": "a"})).await.status, StatusCode::CREATED);
        let other = client.post("/effects", "k", &json!({"note": "b"})).await;
        assert_eq!(other.status, StatusCode::CONFLICT);
        assert_eq!(other.problem(), "key-reused");
        assert_eq!(other.json()["retryable"], false);
        assert!(!other.headers.contains_key("retry-after"));
        assert_eq!(world.effects("b").await, 0);

        let layer = world.layer().mismatch_status(422);
        let draft = Server::start(effects_app(&layer)).await;
        let other = Client::new(&draft).post("/effects", "k", &json!({"note": "b"})).await;
        assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
        world.end().await;
    }
}
