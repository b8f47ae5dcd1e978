//! Problems as an application renders them.

use axum::Router;
use axum::body::Bytes;
use axum::http::{Response, StatusCode, header};
use axum::middleware::{Next, from_fn};
use end_to_end::{Answer, Server};
use tower_idempotency::{Problem, ProblemKind};

use crate::support::{clients, counter, keyed, layer};

/// A rendering that names the problem, the status and whether a retry helps.
fn plain(problem: &Problem) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("{:?}", problem.kind())));
    *response.status_mut() = problem.status();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/plain"),
    );
    response
}

/// R44: a problem that is rendered otherwise stays in the extensions, with `Retry-After`.
#[tokio::test]
async fn rendered_otherwise() {
    let look = from_fn(async |request: axum::extract::Request, next: Next| {
        let mut response = next.run(request).await;
        let seen = response
            .extensions()
            .get::<Problem>()
            .map(|problem| problem.kind().slug());
        if let Some(slug) = seen {
            response
                .headers_mut()
                .insert("x-problem", header::HeaderValue::from_static(slug));
        }
        response
    });
    let busy = layer().max_in_flight(0).problem_with(plain);
    let app = Router::new()
        .route("/", counter().layer(layer().problem_with(plain)))
        .route("/busy", counter().layer(busy))
        .layer(look);
    let server = Server::start(app).await;
    for (key, client) in clients(&server) {
        for (request, kind) in [
            (
                client.request(http::Method::POST, "/"),
                ProblemKind::KeyMissing,
            ),
            (keyed(&client, "/", "a,b"), ProblemKind::KeyInvalid),
            (keyed(&client, "/busy", key), ProblemKind::Busy),
        ] {
            let answer = Answer::of(request).await;
            assert_eq!(answer.status, kind.status());
            assert_eq!(answer.headers["content-type"], "text/plain");
            assert_eq!(answer.headers["x-problem"], kind.slug());
            assert_eq!(answer.body, format!("{kind:?}"));
            let retry_after = answer
                .headers
                .get("retry-after")
                .map(|value| value.as_bytes());
            assert_eq!(retry_after, kind.retryable().then_some(&b"1"[..]));
        }
    }
}

/// R44, R50: a rendering never makes a success of a problem, and may say itself when to retry.
#[tokio::test]
async fn a_rendering_makes_no_success() {
    for status in [StatusCode::OK, StatusCode::NO_CONTENT, StatusCode::IM_USED] {
        let render = move |_: &Problem| {
            let mut response = Response::new(Bytes::from_static(b"fine"));
            *response.status_mut() = status;
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, header::HeaderValue::from_static("7"));
            response
        };
        let layer = layer().max_in_flight(0).problem_with(render);
        let server = Server::start(Router::new().route("/", counter().layer(layer))).await;
        for (key, client) in clients(&server) {
            let answer = Answer::of(keyed(&client, "/", key)).await;
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.headers["retry-after"], "7");
        }
    }
}

/// R44: rendered by the layer, each is a problem document that nobody may keep.
#[tokio::test]
async fn documents_over_the_wire() {
    let server = Server::start(Router::new().route("/", counter().layer(layer()))).await;
    for (_, client) in clients(&server) {
        let answer = Answer::of(client.request(http::Method::POST, "/")).await;
        assert_eq!(answer.problem(), "key-missing");
        assert_eq!(answer.headers["cache-control"], "no-store");
        let expected = Problem::from(ProblemKind::KeyMissing).to_json();
        assert_eq!(answer.body, expected);
    }
}
