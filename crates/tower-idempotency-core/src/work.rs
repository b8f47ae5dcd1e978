//! From just before the claim to after the commit, in a task that no client can cut.

use std::any::Any;
use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tower_service::Service;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::body::ResponseBody;
use crate::claim::{Claim, ClaimOutcome, RecordId};
use crate::error::{BoxError, StoreError};
use crate::finish::Left;
use crate::gate::Entry;
use crate::key::ShortHash;
use crate::lease::Lease;
use crate::patience::{Within, within};
use crate::policy::Scope;
use crate::problem::{Problem, ProblemKind};
use crate::record::{Decision, StoredResponse};
use crate::run::{Ended, Stop};
use crate::service::Shared;
use crate::store::Store;

/// How long a claim whose answer was lost may still be under way.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// A request that is about to claim its key.
pub(crate) struct Arrival<I> {
    pub(crate) inner: I,
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    pub(crate) claim: Claim,
}

/// What the task tells the connection: all that a hook of the user's has to do with is done there,
/// so that its panic finds the key free or completed.
pub(crate) enum Report<R, E> {
    /// What the handler answered.
    Answer(Result<Response<ResponseBody<R>>, E>),
    /// What the layer answers.
    Problem(Problem),
    /// The record is somebody else's.
    Turned(ClaimOutcome),
    /// The handler's panic.
    Panic(Box<dyn Any + Send>),
}

/// What became of an arrival.
pub(crate) enum Attempt<I, R, E> {
    /// It has been dealt with.
    Over(Report<R, E>),
    /// Somebody else is running: it may try again.
    Again(Arrival<I>),
}

/// Claims, runs and commits in a task of its own. What it hands back is the task's report; it comes
/// to nothing only where the runtime is going down.
///
/// No `async fn`: it would have room for the arrival once more.
pub(crate) fn attempt<S, I, B, R>(
    shared: Shared<S>,
    entry: Entry,
    arrival: Arrival<I>,
) -> oneshot::Receiver<Attempt<I, R, I::Error>>
where
    S: Store,
    I: Service<Request<B>, Response = Response<R>> + Send + 'static,
    I::Future: Send,
    I::Error: Send + 'static,
    B: From<Bytes> + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let id = &arrival.claim.id;
    let span = tracing::info_span!(
        "idempotency",
        operation = id.operation.as_str(),
        key_hash = %ShortHash(&id.key),
        outcome = Empty,
        claim_us = Empty,
        begin_us = Empty,
        complete_us = Empty,
        undo_us = Empty,
    );
    // Here, where the service is called: the hook looks at what surrounds it.
    let scope = shared.config.scope.as_ref().map(|hook| hook());
    let (report, reported) = oneshot::channel();
    // In a box: on its way into the task it is moved several times, and it is large.
    let work = Box::pin(shared.work(entry, arrival, scope, report));
    tokio::spawn(work.instrument(span));
    reported
}

impl<S: Store> Shared<S> {
    async fn work<I, B, R>(
        self,
        mut entry: Entry,
        arrival: Arrival<I>,
        scope: Option<Scope>,
        report: oneshot::Sender<Attempt<I, R, I::Error>>,
    ) where
        I: Service<Request<B>, Response = Response<R>> + Send + 'static,
        I::Future: Send,
        I::Error: Send + 'static,
        B: From<Bytes> + Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let acquired = tokio::select! {
            biased;
            acquired = self.acquire(&arrival.claim) => acquired.map_err(|error| {
                log_store_failure("claim", &error);
                outcome_is("store-failure");
                error.problem()
            }),
            // It may wait for the store for longer than a drain has time to.
            () = self.gate.aborted() => {
                outcome_is("drained");
                Err(ProblemKind::Busy.into())
            }
        };
        match acquired {
            Ok(ClaimOutcome::Acquired { .. }) => {}
            Ok(outcome) => {
                outcome_is(outcome_name(&outcome));
                entry.release_permit();
                let _ = report.send(match outcome {
                    ClaimOutcome::InProgress => Attempt::Again(arrival),
                    outcome => Attempt::Over(Report::Turned(outcome)),
                });
                return;
            }
            Err(problem) => {
                entry.release_permit();
                let _ = report.send(Attempt::Over(Report::Problem(problem)));
                // The claim may have been made though its answer was lost, and may even come to be
                // made after the first of these.
                self.free(&arrival.claim).await;
                sleep(AFTERWARDS).await;
                self.free(&arrival.claim).await;
                return;
            }
        }
        let Arrival {
            inner,
            mut parts,
            body,
            claim,
        } = arrival;
        let lease = match self.config.renew_up_to {
            Some(_) => Lease::renewed(claim.clone()),
            None => Lease::claimed(claim.clone()),
        };
        let tx = self.store.lend(lease.clone());
        parts.extensions.insert(tx.clone());
        let request = Request::from_parts(parts, B::from(body));

        let problem = |kind: ProblemKind| Report::<R, I::Error>::Problem(kind.into());
        let (answer, left) = match self.run(inner, request, scope, &lease).await {
            Ended::Success(captured) => self.complete(&tx, &claim, &lease, captured).await,
            Ended::Failure(answer) => {
                self.undo(&tx, &claim, "freed", Report::Answer(answer))
                    .await
            }
            Ended::BodyFailed(error) => {
                tracing::warn!(%error, "response body failed before the commit");
                self.undo(&tx, &claim, "freed", problem(ProblemKind::ResponseFailed))
                    .await
            }
            Ended::Dropped => {
                tracing::error!("the future of the scope hook ended before the handler did");
                let report = problem(ProblemKind::ResponseFailed);
                self.undo(&tx, &claim, "dropped", report).await
            }
            Ended::Panic(payload) => {
                self.undo(&tx, &claim, "panic", Report::Panic(payload))
                    .await
            }
            Ended::Stopped(Stop::Lost) => {
                self.undo(&tx, &claim, "lost", problem(ProblemKind::InProgress))
                    .await
            }
            Ended::Stopped(Stop::Ceiling) => {
                self.undo(&tx, &claim, "ceiling", problem(ProblemKind::HandlerTimeout))
                    .await
            }
            Ended::Stopped(Stop::Drained) => {
                self.undo(&tx, &claim, "drained", problem(ProblemKind::Busy))
                    .await
            }
        };
        entry.release_permit();
        if left == Left::Nothing {
            self.gate.wake(&claim.id);
        }
        // The client may have gone; the work is done all the same.
        let _ = report.send(Attempt::Over(answer));
        match left {
            Left::Nothing => return,
            Left::Leaked => self.reclaim(&tx, &claim).await,
            Left::Unmarked => self.keep_marking(&claim).await,
        }
        self.gate.wake(&claim.id);
    }

    /// Claims the key, under its name and the earlier ones.
    async fn acquire(&self, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let watch = Stopwatch::start();
        let outcome = self.bounded(self.store.claim(claim)).await;
        watch.record("claim_us");
        let outcome = outcome?;
        let ClaimOutcome::Acquired { taken_over } = outcome else {
            return Ok(outcome);
        };
        if taken_over {
            tracing::warn!("stale claim taken over");
        }
        for alias in &self.config.aliases {
            let id = RecordId {
                operation: alias.clone(),
                ..claim.id.clone()
            };
            match self.bounded(Box::pin(self.earlier(&id, claim))).await {
                Ok(None) => {}
                Ok(Some(outcome)) => {
                    self.free(claim).await;
                    return Ok(outcome);
                }
                // The caller frees the key.
                Err(error) => return Err(error),
            }
        }
        Ok(ClaimOutcome::Acquired { taken_over })
    }

    /// What a record under an earlier name says, if there is one that still counts.
    async fn earlier(
        &self,
        id: &RecordId,
        claim: &Claim,
    ) -> Result<Option<ClaimOutcome>, StoreError> {
        let Some(record) = self.store.lookup(id).await? else {
            return Ok(None);
        };
        match record.decide(&claim.fingerprint) {
            Decision::Answer(outcome) => Ok(Some(outcome)),
            // Its owner may only be slow: without its record it cannot commit any more.
            Decision::Replace { seen, stale: true } => {
                let released = self.store.release(id, &seen).await?;
                Ok((!released).then_some(ClaimOutcome::InProgress))
            }
            Decision::Replace { stale: false, .. } => Ok(None),
        }
    }

    /// Bounds a step at the store.
    pub(crate) fn bounded<F: Future>(&self, step: F) -> Bounded<F> {
        Bounded {
            step: within(self.config.store_timeout, step),
        }
    }
}

pin_project! {
    /// A step at the store with a time-out.
    pub(crate) struct Bounded<F> {
        #[pin]
        step: Within<F>,
    }
}

impl<T, F: Future<Output = Result<T, StoreError>>> Future for Bounded<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project()
            .step
            .poll(cx)
            .map(|ended| ended.unwrap_or_else(|_| Err(StoreError::timed_out())))
    }
}

fn outcome_name(outcome: &ClaimOutcome) -> &'static str {
    match outcome {
        ClaimOutcome::Acquired { .. } => "acquired",
        ClaimOutcome::Completed(StoredResponse {
            content: Some(_), ..
        }) => "replayed",
        ClaimOutcome::Completed(_) => "not-kept",
        ClaimOutcome::InProgress => "in-progress",
        ClaimOutcome::Mismatch => "mismatch",
        ClaimOutcome::Tombstone => "gone",
    }
}

pub(crate) fn outcome_is(outcome: &'static str) {
    Span::current().record("outcome", outcome);
}

/// Measures a step for the request's span, where there is somebody who reads it.
pub(crate) struct Stopwatch(Option<Instant>);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self((!Span::current().is_disabled()).then(Instant::now))
    }

    pub(crate) fn record(self, step: &'static str) {
        if let Some(started) = self.0 {
            let us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            Span::current().record(step, us);
        }
    }
}

pub(crate) fn log_store_failure(step: &'static str, error: &StoreError) {
    let source = error.source().map(tracing::field::display);
    tracing::warn!(step, %error, source, "store failure");
}
