//! What a client is told when the layer itself answers: RFC 9457 problem documents.

mod kind;

use std::borrow::Cow;
use std::fmt::Write as _;

use axum_core::body::Body;
use axum_core::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

pub use kind::ProblemKind;

/// Where the headings are that the `type` of every problem points to.
const DOCS: &str = "https://docs.rs/tower-idempotency/latest/tower_idempotency/problems/index.html";

/// An error as `application/problem+json` (RFC 9457), with `type`, `title`, `status`, `detail` and
/// `retryable`.
///
/// It is in the extensions of every response that the layer itself makes, however it is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    kind: ProblemKind,
    status: StatusCode,
    detail: Cow<'static, str>,
    original_status: Option<StatusCode>,
}

impl Problem {
    /// Which problem it is.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// The status it is answered with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The URI that identifies the kind, and resolves to its heading in the docs.
    #[must_use]
    pub fn type_uri(&self) -> String {
        format!("{DOCS}#{}", self.kind.slug())
    }

    /// What went wrong and what to do, in a sentence for the client's developer.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Whether the same request with the same key may succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        self.kind.retryable()
    }

    /// The seconds of `Retry-After`, where there is one.
    #[must_use]
    pub fn retry_after(&self) -> Option<u8> {
        self.kind.facts().retry_after
    }

    /// The status that the lost result had, for `result-not-kept`.
    #[must_use]
    pub fn original_status(&self) -> Option<StatusCode> {
        self.original_status
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = detail.into();
        self
    }

    pub(crate) fn with_original_status(mut self, status: StatusCode) -> Self {
        self.original_status = Some(status);
        self
    }

    /// The document.
    #[must_use]
    pub fn to_json(&self) -> String {
        let facts = self.kind.facts();
        let mut json = String::with_capacity(384);
        json.push_str("{\"type\":");
        push_json_text(&mut json, &self.type_uri());
        json.push_str(",\"title\":");
        push_json_text(&mut json, facts.title);
        let _ = write!(json, ",\"status\":{},\"detail\":", self.status.as_u16());
        push_json_text(&mut json, &self.detail);
        let _ = write!(json, ",\"retryable\":{}", self.retryable());
        if let Some(status) = self.original_status {
            let _ = write!(json, ",\"original_status\":{}", status.as_u16());
        }
        json.push('}');
        json
    }

    /// The response, with any body that can be made of bytes.
    pub fn to_response<B: From<Bytes>>(&self) -> http::Response<B> {
        let mut response = http::Response::new(B::from(Bytes::from(self.to_json())));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(u16::from(seconds)));
        }
        if self.kind == ProblemKind::KeyMissing {
            let link = format!("<{}>; rel=\"describedby\"", self.type_uri());
            if let Ok(link) = HeaderValue::try_from(link) {
                headers.insert(header::LINK, link);
            }
        }
        response.extensions_mut().insert(self.clone());
        response
    }
}

impl From<ProblemKind> for Problem {
    fn from(kind: ProblemKind) -> Self {
        let facts = kind.facts();
        Self {
            kind,
            status: facts.status,
            detail: Cow::Borrowed(facts.detail),
            original_status: None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.to_response::<Body>()
    }
}

/// Appends a JSON string (RFC 8259, section 7).
fn push_json_text(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            c if u32::from(c) < 0x20 => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
}
