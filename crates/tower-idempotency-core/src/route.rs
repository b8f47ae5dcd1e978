//! What axum's router knows of a request. The only file that names axum.

use http::request::Parts;

/// The route that matched, with what `nest` put before it.
pub(crate) fn matched_route(parts: &Parts) -> Option<&str> {
    #[cfg(feature = "axum")]
    {
        parts
            .extensions
            .get::<axum::extract::MatchedPath>()
            .map(axum::extract::MatchedPath::as_str)
    }
    #[cfg(not(feature = "axum"))]
    {
        let _ = parts;
        None
    }
}

/// The target as the client sent it: `nest` strips prefixes from the request's own.
pub(crate) fn original_target(parts: &Parts) -> &http::Uri {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::OriginalUri(uri)) = parts.extensions.get() {
        return uri;
    }
    &parts.uri
}
