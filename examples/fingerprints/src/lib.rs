//! Canonical forms of bodies, for clients whose retries write the same request differently.
//!
//! Each is made to be given to [`IdempotencyLayer::fingerprint_body_with`]. Two bodies that have
//! one canonical form are one request, so a form must keep whatever a handler could notice; where
//! a body is not understood, it is returned as it is.
//!
//! [`IdempotencyLayer::fingerprint_body_with`]: tower_idempotency::IdempotencyLayer::fingerprint_body_with

mod form;
mod json;

pub use form::canonical_form;
pub use json::canonical_json;

use http::header::CONTENT_TYPE;
use http::request::Parts;

/// The media type of a request in lower case, without what stands behind it, and that.
fn media_type(parts: &Parts) -> Option<(String, &str)> {
    let value = parts.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let (media_type, parameters) = value.split_once(';').unwrap_or((value, ""));
    Some((media_type.trim().to_ascii_lowercase(), parameters))
}
