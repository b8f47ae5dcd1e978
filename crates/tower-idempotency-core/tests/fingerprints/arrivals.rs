//! Two arrivals of one key, through the whole layer: one request, or two.

use std::convert::Infallible;

use axum_core::body::Body;
use http::{Request, Response, StatusCode, header};
use proptest::prelude::*;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_idempotency_core::{IdempotencyLayer, MemoryStore, Owner, Problem, ProblemKind};

use crate::fields::{Body as Digest, Fields, similar_fields};

/// A request with those fields: its digest stands for its body.
fn request(fields: &Fields) -> Request<Body> {
    let (Digest::Raw(body) | Digest::Custom(body)) = &fields.body;
    let mut request = Request::new(Body::from(body.to_vec()));
    *request.method_mut() = fields.method.parse().expect("a token");
    let query = fields.query.as_deref().map(|query| format!("?{query}"));
    let path = fields.path.as_deref().unwrap_or_default();
    let target = format!("http://x{path}{}", query.unwrap_or_default());
    *request.uri_mut() = target.parse().expect("a target");
    request.extensions_mut().insert(Owner::shared());
    let headers = request.headers_mut();
    headers.insert("idempotency-key", "k".parse().expect("a field line"));
    for (name, value) in [
        (header::CONTENT_TYPE, &fields.content_type),
        (header::CONTENT_ENCODING, &fields.content_encoding),
    ] {
        if let Some(value) = value {
            headers.insert(name, value[..].try_into().expect("a field line"));
        }
    }
    for (name, lines) in &fields.bound {
        let name: http::HeaderName = name.parse().expect("a token");
        for line in lines {
            headers.append(&name, line[..].try_into().expect("a field line"));
        }
    }
    request
}

/// What can be written into a target; a body that counts as it is.
fn sent(mut fields: Fields) -> Fields {
    let keep = |text: &mut Option<String>| {
        if let Some(text) = text {
            text.retain(|c| c.is_ascii_alphanumeric() || "/=&%.-_~".contains(c));
        }
    };
    keep(&mut fields.path);
    keep(&mut fields.query);
    let path = fields.path.unwrap_or_default();
    fields.path = Some(if path.is_empty() {
        path
    } else {
        format!("/{path}")
    });
    if let Digest::Custom(digest) = fields.body {
        fields.body = Digest::Raw(digest);
    }
    fields
}

async fn answer(layer: &IdempotencyLayer<MemoryStore>, fields: &Fields) -> Response<()> {
    let inner =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let answer = layer.layer(inner).oneshot(request(fields)).await;
    answer.unwrap_or_else(|never| match never {}).map(drop)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// R20, R21, R23, R51, R52: the second arrival is a replay where every field is equal, and a
    /// conflict where one differs.
    #[test]
    fn a_replay_or_a_conflict((one, other) in similar_fields()) {
        let (one, other) = (sent(one), sent(other));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let bound = one.bound.keys().chain(other.bound.keys()).map(|name| name.parse().expect("a token"));
            let methods = [&one, &other].map(|fields| fields.method.parse().expect("a token"));
            let layer = IdempotencyLayer::with_store(MemoryStore::new()).operation("any").methods(methods);
            let layer = bound.fold(layer, |layer, name| layer.bind_header(name));
            let first = answer(&layer, &one).await;
            prop_assert_eq!(first.status(), StatusCode::OK);
            prop_assert!(!first.headers().contains_key("idempotent-replayed"));
            let second = answer(&layer, &other).await;
            if one.normal() == other.normal() {
                prop_assert_eq!(&second.headers()["idempotent-replayed"], "true");
            } else {
                let problem = second.extensions().get::<Problem>().map(Problem::kind);
                prop_assert_eq!(problem, Some(ProblemKind::KeyReused));
            }
            Ok(())
        })?;
    }
}
