//! The handler, from its call to the last byte that is captured, unless the layer has to stop it.

use std::any::Any;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tower_service::Service;

use crate::body::ResponseBody;
use crate::error::BoxError;
use crate::layer::Config;
use crate::lease::{Lease, Renewed};
use crate::policy::{Scope, Work};
use crate::response::{Captured, NotCaptured, capture, is_success};
use crate::service::Shared;
use crate::store::Store;
use crate::work::log_store_failure;

/// How the handler ended.
pub(crate) enum Ended<R, E> {
    /// With a 2xx whose body is captured.
    Success(Captured<R>),
    /// With anything else.
    Failure(Result<Response<ResponseBody<R>>, E>),
    /// With a 2xx whose body failed.
    BodyFailed(BoxError),
    /// With a panic.
    Panic(Box<dyn Any + Send>),
    /// Before its end: the scope hook's future dropped it.
    Dropped,
    /// The layer dropped it.
    Stopped(Stop),
}

/// Why the layer drops a handler.
pub(crate) enum Stop {
    /// It ran longer than the renewal's ceiling.
    Ceiling,
    /// Its claim was taken over.
    Lost,
    /// The layer is being drained.
    Drained,
}

impl<S: Store> Shared<S> {
    /// Runs the handler and captures what it answers, unless the layer has to stop it.
    pub(crate) async fn run<I, B, R>(
        &self,
        inner: I,
        request: Request<B>,
        scope: Option<Scope>,
        lease: &Lease,
    ) -> Ended<R, I::Error>
    where
        I: Service<Request<B>, Response = Response<R>> + Send + 'static,
        I::Future: Send,
        I::Error: Send + 'static,
        B: Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let handled = async {
            let Some(scope) = scope else {
                return handle(inner, request, &self.config).await;
            };
            let (done, mut ended) = oneshot::channel();
            let config = Arc::clone(&self.config);
            let work: Work = Box::pin(async move {
                let _ = done.send(handle(inner, request, &config).await);
            });
            scope(work).await;
            // Not to be had: what the scope put around the handler has dropped it.
            ended.try_recv().unwrap_or(Ended::Dropped)
        };
        let mut handled = pin!(Some(handled));
        let stop = tokio::select! {
            biased;
            caught = caught(handled.as_mut()) => {
                return caught.unwrap_or_else(Ended::Panic);
            }
            stop = self.keep_alive(lease) => stop,
            () = self.gate.aborted() => Stop::Drained,
        };
        // Before the roll-back: the handler may hold the transaction.
        match catch_unwind(AssertUnwindSafe(|| handled.set(None))) {
            Ok(()) => Ended::Stopped(stop),
            Err(payload) => Ended::Panic(payload),
        }
    }

    /// Keeps the claim fresh. Ends when the handler must be dropped.
    async fn keep_alive(&self, lease: &Lease) -> Stop {
        let Some(ceiling) = self.config.renew_up_to else {
            return pending().await;
        };
        let ceiling = Instant::now() + ceiling;
        let mut renewing = true;
        loop {
            let next = Instant::now() + self.config.stale_after / 3;
            if !renewing || next >= ceiling {
                sleep_until(ceiling).await;
                return Stop::Ceiling;
            }
            sleep_until(next).await;
            // In a box: most handlers end before the first renewal, and have no room for it.
            match self.bounded(Box::pin(lease.renew(&self.store))).await {
                Ok(Renewed::Yes) => {}
                Ok(Renewed::Over) => renewing = false,
                Ok(Renewed::Lost) => return Stop::Lost,
                Err(error) => log_store_failure("renewal", &error),
            }
        }
    }
}

/// Calls the handler and captures what it answers.
async fn handle<I, B, R>(mut inner: I, request: Request<B>, config: &Config) -> Ended<R, I::Error>
where
    I: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let mut response = match inner.call(request).await {
        Ok(response) => response,
        Err(error) => return Ended::Failure(Err(error)),
    };
    response.headers_mut().remove(&config.headers.replayed);
    if !is_success(&response) {
        return Ended::Failure(Ok(response.map(ResponseBody::inner)));
    }
    match capture(response, config.capture, &config.headers).await {
        Ok(captured) => Ended::Success(captured),
        Err(NotCaptured::NoSuccess(response)) => Ended::Failure(Ok(*response)),
        Err(NotCaptured::BodyFailed(error)) => Ended::BodyFailed(error.into()),
    }
}

/// Polls a future to its end, drops it, and catches its panic.
async fn caught<F: Future>(
    mut future: Pin<&mut Option<F>>,
) -> Result<F::Output, Box<dyn Any + Send>> {
    let ended = poll_fn(|cx| {
        let polled = AssertUnwindSafe(|| match future.as_mut().as_pin_mut() {
            Some(running) => running.poll(cx),
            None => Poll::Pending,
        });
        match catch_unwind(polled) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(payload)),
        }
    })
    .await;
    // What it held may hold the transaction.
    match catch_unwind(AssertUnwindSafe(|| future.set(None))) {
        Ok(()) => ended,
        Err(payload) => Err(payload),
    }
}
