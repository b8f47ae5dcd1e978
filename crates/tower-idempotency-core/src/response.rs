//! From the handler's response to what is kept of it, and back.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, response};
use http_body::Body;

use crate::body::{Capture, Progress, ResponseBody};
use crate::error::StoreError;
use crate::headers::{HeaderPolicy, parse_block};
use crate::patience::within;
use crate::problem::{Problem, ProblemKind};
use crate::record::{StoredContent, StoredResponse};

/// A 2xx response before the commit.
pub(crate) struct Captured<R> {
    /// What is recorded.
    pub(crate) stored: StoredResponse,
    /// What this client gets, once the commit is proven.
    pub(crate) response: Response<ResponseBody<R>>,
}

/// Why there is nothing to commit after all.
pub(crate) enum NotCaptured<R, E> {
    /// The trailers say that it is no success.
    NoSuccess(Box<Response<ResponseBody<R>>>),
    /// The body broke off.
    BodyFailed(E),
}

/// How large a response may be, and how long it may take, to be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CaptureLimits {
    pub(crate) bytes: usize,
    pub(crate) time: Duration,
}

/// Whether a response commits: 2xx, and for gRPC, whose failures are 200 too, without a status
/// other than OK.
pub(crate) fn is_success<R>(response: &Response<R>) -> bool {
    response.status().is_success() && !is_grpc_failure(response.headers())
}

fn is_grpc_failure(headers: &HeaderMap) -> bool {
    headers
        .get("grpc-status")
        .is_some_and(|status| status != "0")
}

/// Captures a 2xx response. One that cannot be kept is streamed on, after what was read of it.
pub(crate) async fn capture<R>(
    response: Response<R>,
    limits: CaptureLimits,
    policy: &HeaderPolicy,
) -> Result<Captured<R>, NotCaptured<R, R::Error>>
where
    R: Body<Data = Bytes>,
{
    let (head, body) = response.into_parts();
    let mut capture = Capture::new(body);
    let complete = !is_event_stream(&head.headers)
        && match within(limits.time, capture.read(limits.bytes)).await {
            Ok(Ok(progress)) => matches!(progress, Progress::Complete),
            Ok(Err(error)) => return Err(NotCaptured::BodyFailed(error)),
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
    let failed = trailers.as_ref().is_some_and(is_grpc_failure);
    let block = policy.block(&head.headers, trailers.as_ref());
    let stored = StoredResponse::kept(head.status, block, body.clone());
    let response = Response::from_parts(head, ResponseBody::whole(body, trailers));
    if failed {
        return Err(NotCaptured::NoSuccess(Box::new(response)));
    }
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
    status: StatusCode,
    content: Option<&StoredContent>,
    policy: &HeaderPolicy,
) -> Result<Response<ResponseBody<R>>, Problem> {
    let Some(StoredContent { headers, body }) = content else {
        return Err(if status.is_success() {
            Problem::from(ProblemKind::ResultNotKept).with_original_status(status)
        } else {
            ProblemKind::OutcomeUnknown.into()
        });
    };
    let unreadable = |error: StoreError| {
        tracing::error!(%error, "stored result is unreadable");
        error.problem()
    };
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = status;
    let (headers, trailers) = parse_block(headers).map_err(unreadable)?;
    head.headers = headers;
    head.headers
        .insert(policy.replayed.clone(), HeaderValue::from_static("true"));
    let body = if has_no_body(&head) {
        Bytes::new()
    } else {
        body.clone()
    };
    Ok(Response::from_parts(
        head,
        ResponseBody::whole(body, trailers),
    ))
}

/// RFC 9110, sections 15.3.5 and 15.3.6.
fn has_no_body(head: &response::Parts) -> bool {
    matches!(
        head.status,
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT
    )
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use http_body_util::{BodyExt as _, Full};

    use super::*;

    const LIMITS: CaptureLimits = CaptureLimits {
        bytes: 1024,
        time: Duration::from_secs(1),
    };

    fn line(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(
            header::HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )])
    }

    /// Whether a response with that header and those trailers is kept; `None` where it is no success.
    async fn is_kept(headers: HeaderMap, trailers: Option<HeaderMap>) -> Option<bool> {
        let body = Full::new(Bytes::from_static(b"body")).with_trailers(ready(trailers.map(Ok)));
        let mut response = Response::new(body);
        *response.headers_mut() = headers;
        if !is_success(&response) {
            return None;
        }
        let captured = capture(response, LIMITS, &HeaderPolicy::default()).await;
        match captured {
            Ok(Captured { stored, .. }) => Some(match stored.content {
                Some(content) => {
                    assert_eq!(&content.body[..], b"body");
                    true
                }
                None => false,
            }),
            Err(NotCaptured::NoSuccess(_)) => None,
            Err(NotCaptured::BodyFailed(never)) => match never {},
        }
    }

    /// R54, R45: gRPC's failures are 200 too, in the headers or in the trailers.
    #[tokio::test]
    async fn a_grpc_failure_is_no_success() {
        let plain = || line("content-type", "application/grpc");
        assert_eq!(is_kept(plain(), None).await, Some(true));
        for (status, kept) in [("0", Some(true)), ("5", None)] {
            let status = line("grpc-status", status);
            assert_eq!(is_kept(status.clone(), None).await, kept);
            assert_eq!(is_kept(plain(), Some(status)).await, kept);
        }
    }

    /// R43: an event stream is streamed on, however its type is written; nothing else is taken for one.
    #[tokio::test]
    async fn an_event_stream_is_not_kept() {
        for (content_type, kept) in [
            ("text/event-stream", false),
            ("Text/Event-Stream; charset=utf-8", false),
            ("text/event", true),
            ("text/event-strea_", true),
            ("application/problem+json", true),
        ] {
            let headers = line("content-type", content_type);
            assert_eq!(is_kept(headers, None).await, Some(kept), "{content_type}");
        }
        assert_eq!(is_kept(HeaderMap::new(), None).await, Some(true));
    }

    /// RFC 9110: 204 and 205 have no body, whatever is stored.
    #[tokio::test]
    async fn a_replay_has_the_body_that_its_status_may_have() {
        for (status, body) in [(200, "body"), (201, "body"), (204, ""), (205, "")] {
            let status = StatusCode::from_u16(status).expect("a status");
            let stored = StoredResponse::kept(status, "", "body");
            let replayed =
                replay::<Full<Bytes>>(status, stored.content.as_ref(), &HeaderPolicy::default());
            let replayed = replayed.unwrap_or_else(|problem| panic!("{problem:?}"));
            let collected = replayed.into_body().collect().await.expect("a body");
            assert_eq!(&collected.to_bytes()[..], body.as_bytes(), "{status}");
        }
    }
}
