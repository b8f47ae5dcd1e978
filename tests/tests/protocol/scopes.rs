//! What surrounds a request, in the task that its handler runs in.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::post;
use end_to_end::{Client, Server, World, on_every_database};
use serde_json::json;
use tower_idempotency::Work;

tokio::task_local! {
    static TENANT: &'static str;
}

on_every_database! {
    /// R56: the handler runs in a task of its own, which no task-local of its caller follows; a scope
    /// takes it there, read where the request came in.
    async fn a_scope_carries_a_task_local<D>() {
        let world = World::<D>::new().await;
        let seen = || async { TENANT.try_with(|tenant| *tenant).unwrap_or("nobody") };
        let scoped = world.layer().scope_with(|| {
            let tenant = TENANT.get();
            Box::new(move |work| -> Work { Box::pin(TENANT.scope(tenant, work)) })
        });
        let surround = |request: Request, next: Next| TENANT.scope("acme", next.run(request));
        let app = Router::new()
            .route("/scoped", post(seen).layer(scoped))
            .route("/plain", post(seen).layer(world.layer()))
            .layer(from_fn(surround));
        let server = Server::start(app).await;
        let client = Client::new(&server);
        assert_eq!(client.post("/scoped", "k", &json!({})).await.body, "acme");
        assert_eq!(client.post("/plain", "k", &json!({})).await.body, "nobody");
        world.end().await;
    }
}
