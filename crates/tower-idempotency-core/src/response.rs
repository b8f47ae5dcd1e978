//! From the handler's response to what is kept of it, and back.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, response};
use http_body::Body;
use tokio::time::timeout;

use crate::body::{Capture, Progress, ResponseBody};
use crate::error::StoreError;
use crate::headers::{HeaderPolicy, parse_block};
use crate::problem::{Problem, ProblemKind};
use crate::record::{StoredContent, StoredResponse};

/// A 2xx response before the commit.
pub(crate) struct Captured<R> {
    /// What is recorded.
    pub(crate) stored: StoredResponse,
    /// What this client gets, once the commit is proven.
    pub(crate) response: Response<ResponseBody<R>>,
}

/// How large a response may be, and how long it may take, to be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CaptureLimits {
    pub(crate) bytes: usize,
    pub(crate) time: Duration,
}

/// Captures a 2xx response. One that cannot be kept is streamed on, after what was read of it.
pub(crate) async fn capture<R>(
    response: Response<R>,
    limits: CaptureLimits,
    policy: &HeaderPolicy,
) -> Result<Captured<R>, R::Error>
where
    R: Body<Data = Bytes>,
{
    let (head, body) = response.into_parts();
    let mut capture = Capture::new(body);
    let complete = !is_event_stream(&head.headers)
        && match timeout(limits.time, capture.read(limits.bytes)).await {
            Ok(progress) => matches!(progress?, Progress::Complete),
            Err(_) => false,
        };
    if !complete {
        tracing::debug!(status = %head.status, "result cannot be kept: too large, too slow or an event stream");
        return Ok(Captured {
            stored: StoredResponse::not_kept(head.status),
            response: Response::from_parts(head, capture.into_resumed()),
        });
    }
    let (body, trailers) = capture.into_whole();
    let stored = StoredResponse::kept(head.status, policy.block(&head.headers), body.clone());
    let response = Response::from_parts(head, ResponseBody::whole(body, trailers));
    Ok(Captured { stored, response })
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"text/event-stream";
    headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let value = value.as_bytes();
        value.len() >= TYPE.len() && value[..TYPE.len()].eq_ignore_ascii_case(TYPE)
    })
}

/// What a completed record answers.
pub(crate) fn replay<R>(
    stored: &StoredResponse,
    policy: &HeaderPolicy,
) -> Result<Response<ResponseBody<R>>, Problem> {
    let Some(StoredContent { headers, body }) = &stored.content else {
        return Err(if stored.status.is_success() {
            Problem::from(ProblemKind::ResultNotKept).with_original_status(stored.status)
        } else {
            ProblemKind::OutcomeUnknown.into()
        });
    };
    let unreadable = |error: StoreError| {
        tracing::error!(%error, "stored result is unreadable");
        error.problem()
    };
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = stored.status;
    head.headers = parse_block(headers).map_err(unreadable)?;
    head.headers
        .insert(policy.replayed.clone(), HeaderValue::from_static("true"));
    let body = if has_no_body(&head) {
        Bytes::new()
    } else {
        body.clone()
    };
    Ok(Response::from_parts(head, ResponseBody::whole(body, None)))
}

/// RFC 9110, sections 15.3.5 and 15.3.6.
fn has_no_body(head: &response::Parts) -> bool {
    matches!(
        head.status,
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT
    )
}
