//! The routes, and what browsers may send and read.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tower_http::cors::CorsLayer;
use tower_idempotency::{
    IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, IdempotencyLayer, MemoryStore, Owner,
};

/// Stands in for a session, a token or whatever else an authentication layer would check.
const DEMO_USER: HeaderName = HeaderName::from_static("x-demo-user");

/// What a page of another origin may send and read.
///
/// `Idempotency-Key` has to be allowed, or the browser does not send the request at all. What is
/// not exposed is there, but the page cannot read it: the mark of a replay, when to retry, and
/// where the new resource is.
pub(crate) fn cors(page: HeaderValue) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(page)
        .allow_methods([Method::POST])
        .allow_headers([header::CONTENT_TYPE, IDEMPOTENCY_KEY, DEMO_USER])
        .expose_headers([IDEMPOTENT_REPLAYED, header::LOCATION, header::RETRY_AFTER])
}

/// CORS is outside of everything, so that it also answers for what the others refuse.
pub(crate) fn router(page: HeaderValue, idempotency: IdempotencyLayer<MemoryStore>) -> Router {
    Router::new()
        .route("/orders", post(order).layer(idempotency.operation("order")))
        .layer(from_fn(authenticate))
        .layer(cors(page))
}

/// NOT an authentication: it believes whatever the header says.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let user = request
        .headers()
        .get(DEMO_USER)
        .and_then(|value| value.to_str().ok());
    let Some(owner) = user.and_then(|user| Owner::new(user).ok()) else {
        return (
            StatusCode::UNAUTHORIZED,
            "say who you are in the header X-Demo-User\n",
        )
            .into_response();
    };
    request.extensions_mut().insert(owner);
    next.run(request).await
}

#[derive(Serialize, Deserialize)]
struct Order {
    what: String,
}

async fn order(Json(order): Json<Order>) -> impl IntoResponse {
    let location = [(header::LOCATION, format!("/orders/{}", order.what))];
    (StatusCode::CREATED, location, Json(order))
}
