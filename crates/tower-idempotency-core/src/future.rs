//! The service's future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;

use crate::body::ResponseBody;

/// The future of [`Idempotency`](crate::Idempotency).
///
/// # Cancellation
///
/// Dropping it ends the client's wait. While the request's body is being read, it costs nothing.
/// From the claim on, the handler runs on in a task of its own until its work is committed or
/// rolled back.
pub struct ResponseFuture<R, E>(Pin<Box<Answer<R, E>>>);

type Answer<R, E> = dyn Future<Output = Result<Response<ResponseBody<R>>, E>> + Send;

impl<R, E> ResponseFuture<R, E> {
    pub(crate) fn new(
        answer: impl Future<Output = Result<Response<ResponseBody<R>>, E>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(answer))
    }
}

impl<R, E> Future for ResponseFuture<R, E> {
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<R, E> fmt::Debug for ResponseFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture(..)")
    }
}
