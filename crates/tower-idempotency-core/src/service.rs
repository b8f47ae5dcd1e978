//! The service: the way of a request, in order.

use std::fmt;
use std::mem;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, header};
use http_body::Body;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use crate::body::{self, ReadBody, ResponseBody};
use crate::claim::{Claim, ClaimOutcome, ClaimToken, RecordId};
use crate::error::BoxError;
use crate::fingerprint::Fingerprint;
use crate::future::ResponseFuture;
use crate::gate::Gate;
use crate::key::{IdempotencyKey, KeyError};
use crate::layer::Config;
use crate::lease::Lease;
use crate::owner::Owner;
use crate::problem::{Problem, ProblemKind};
use crate::record::StoredResponse;
use crate::response::replay;
use crate::route::original_target;
use crate::store::Store;
use crate::work::{self, Arrival, Attempt, Report};

/// The service that [`IdempotencyLayer`](crate::IdempotencyLayer) puts around another.
pub struct Idempotency<I, S> {
    inner: I,
    shared: Shared<S>,
}

/// What the requests of a layer have in common.
#[derive(Clone)]
pub(crate) struct Shared<S> {
    pub(crate) store: S,
    pub(crate) config: Arc<Config>,
    pub(crate) gate: Arc<Gate>,
}

/// How soon an arrival that waits looks again for the result of another process.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// How long it waits between two looks at last.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Marks a request that an idempotency layer has seen.
#[derive(Clone)]
struct Seen;

impl<I, S> Idempotency<I, S> {
    pub(crate) fn new(inner: I, store: S, config: Arc<Config>, gate: Arc<Gate>) -> Self {
        Self {
            inner,
            shared: Shared {
                store,
                config,
                gate,
            },
        }
    }
}

impl<I, S, B, R> Service<Request<B>> for Idempotency<I, S>
where
    I: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    I::Future: Send,
    I::Error: Send + 'static,
    S: Store,
    B: Body<Data: Send> + From<Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = I::Error;
    type Future = ResponseFuture<R, I::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone may not be ready; the one that was polled is.
        let next = self.inner.clone();
        let inner = mem::replace(&mut self.inner, next);
        let shared = self.shared.clone();
        ResponseFuture::new(shared.answer(inner, request))
    }
}

/// Why a request is not claimed.
enum Unclaimed {
    /// It goes to the handler, with what its transaction is to know; and its method, where that is not
    /// covered though there is a key.
    Pass(Lease, Option<Method>),
    /// The layer answers it.
    Refuse(Problem),
}

impl From<Problem> for Unclaimed {
    fn from(problem: Problem) -> Self {
        Self::Refuse(problem)
    }
}

impl From<ProblemKind> for Unclaimed {
    fn from(kind: ProblemKind) -> Self {
        Self::Refuse(kind.into())
    }
}

/// The runtime is going down, and has dropped the task.
fn unreported<R, E>() -> Report<R, E> {
    Report::Problem(ProblemKind::CommitUnknown.into())
}

impl<S: Store> Shared<S> {
    /// The way of a request: method, operation, key, owner, body, fingerprint, permit, claim; then
    /// the handler, or what the record says.
    async fn answer<I, B, R>(
        self,
        inner: I,
        request: Request<B>,
    ) -> Result<Response<ResponseBody<R>>, I::Error>
    where
        I: Service<Request<B>, Response = Response<R>> + Send + 'static,
        I::Future: Send,
        I::Error: Send + 'static,
        B: Body<Data: Send> + From<Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        let id = match self.identify(&mut parts) {
            Ok(id) => id,
            Err(Unclaimed::Refuse(problem)) => return Ok(self.config.render(&problem)),
            Err(Unclaimed::Pass(lease, uncovered)) => {
                let request = Request::from_parts(parts, body);
                return self.run_unclaimed(inner, request, lease, uncovered).await;
            }
        };
        let read = match body::read(body, self.config.max_request_body).await {
            Ok(read) => read,
            Err(problem) => return Ok(self.config.render(&problem)),
        };
        let claim = match self.claim(id.clone(), &parts, &read) {
            Ok(claim) => claim,
            Err(problem) => return Ok(self.config.render(&problem)),
        };
        // The handler gets the parts; a refusal of the replay needs them afterwards.
        let asking = self.config.replay_hook.is_some().then(|| parts.clone());
        let arrival = Arrival {
            inner,
            parts,
            body: read.bytes,
            claim,
        };
        let report = match self.config.wait.is_zero() {
            true => self.once(arrival).await,
            // In a box: most have no room for it.
            false => Box::pin(self.patiently(arrival)).await,
        };
        match report {
            Report::Answer(answer) => answer,
            Report::Problem(problem) => Ok(self.config.render(&problem)),
            Report::Turned(outcome) => Ok(self.config.turn_away(&id, asking.as_ref(), outcome)),
            Report::Panic(payload) => resume_unwind(payload),
        }
    }

    /// Permit and claim.
    async fn once<I, B, R>(&self, arrival: Arrival<I>) -> Report<R, I::Error>
    where
        I: Service<Request<B>, Response = Response<R>> + Send + 'static,
        I::Future: Send,
        I::Error: Send + 'static,
        B: From<Bytes> + Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let Some(entry) = self.gate.enter() else {
            return Report::Problem(ProblemKind::Busy.into());
        };
        match work::attempt(self.clone(), entry, arrival).await {
            Ok(Attempt::Over(report)) => report,
            Ok(Attempt::Again(_)) => Report::Turned(ClaimOutcome::InProgress),
            Err(_) => unreported(),
        }
    }

    /// Permit and claim, again and again while another's result is waited for.
    async fn patiently<I, B, R>(&self, arrival: Arrival<I>) -> Report<R, I::Error>
    where
        I: Service<Request<B>, Response = Response<R>> + Send + 'static,
        I::Future: Send,
        I::Error: Send + 'static,
        B: From<Bytes> + Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let id = arrival.claim.id.clone();
        let _listening = self.gate.listen();
        let deadline = Instant::now() + self.config.wait;
        let mut pause = SHORTEST_PAUSE;
        let mut waiting = None;
        let mut arrival = arrival;
        loop {
            // Before the claim, so that nothing that happens after it is missed.
            let mut woken = pin!(self.gate.woken(&id));
            woken.as_mut().enable();
            arrival = match self.gate.enter() {
                Some(entry) => match work::attempt(self.clone(), entry, arrival).await {
                    Ok(Attempt::Over(report)) => return report,
                    Ok(Attempt::Again(arrival)) => arrival,
                    Err(_) => return unreported(),
                },
                // Others have all the permits: no reason to send away who waits.
                None if waiting.is_some() && self.gate.is_open() => arrival,
                None => return Report::Problem(ProblemKind::Busy.into()),
            };
            waiting = waiting.or_else(|| self.gate.wait());
            let next = (Instant::now() + pause).min(deadline);
            if waiting.is_none() || Instant::now() >= deadline {
                return Report::Turned(ClaimOutcome::InProgress);
            }
            let _ = timeout_at(next, woken).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            arrival.claim.token = ClaimToken::random();
        }
    }

    /// Method, operation, key and owner.
    fn identify(&self, parts: &mut Parts) -> Result<RecordId, Unclaimed> {
        let config = &self.config;
        if parts.extensions.insert(Seen).is_some() {
            tracing::error!(
                "two idempotency layers are around this handler: remove the `.layer(..)` line of either the route or the router"
            );
            return Err(ProblemKind::LayerNested.into());
        }
        if !config.methods.cover(&parts.method) {
            let has_key = parts.headers.contains_key(&config.key_header);
            let uncovered = has_key.then(|| parts.method.clone());
            return Err(Unclaimed::Pass(Lease::unclaimed(), uncovered));
        }
        let Some(operation) = config.naming.of(parts) else {
            let why =
                "no route matched and the operation has no name; give it one with `.operation(..)`";
            return Err(Unclaimed::Pass(Lease::refused(why), None));
        };
        let key =
            IdempotencyKey::from_headers(&parts.headers, &config.key_header, config.key_grammar);
        let key = match key {
            Ok(key) => key,
            Err(KeyError::Missing) if !config.key_required => {
                return Err(Unclaimed::Pass(Lease::unclaimed(), None));
            }
            Err(KeyError::Missing) => return Err(ProblemKind::KeyMissing.into()),
            Err(error) => {
                let problem = Problem::from(ProblemKind::KeyInvalid);
                let detail = format!("{} Here, {error}.", problem.detail());
                return Err(problem.with_detail(detail).into());
            }
        };
        let Some(owner) = parts.extensions.get::<Owner>().cloned() else {
            tracing::error!(
                operation = operation.as_str(),
                "no owner: add `request.extensions_mut().insert(Owner::new(id)?)` to the authentication layer, outside the idempotency layer"
            );
            return Err(ProblemKind::OwnerMissing.into());
        };
        Ok(RecordId {
            owner,
            operation,
            key,
        })
    }

    /// The fingerprint of the whole request, and the claim that it makes.
    fn claim(&self, id: RecordId, parts: &Parts, body: &ReadBody) -> Result<Claim, Problem> {
        let config = &self.config;
        let target = original_target(parts);
        let mut builder = Fingerprint::builder(&parts.method).query(target.query());
        if config.path_counts {
            builder = builder.path(target.path());
        }
        for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING] {
            let mut lines = parts.headers.get_all(&name).iter();
            if let Some(line) = lines.next() {
                builder = match config.body_hook {
                    Some(_) => builder.canonical_content_header(&name, line.as_bytes()),
                    None => builder.content_header(&name, line.as_bytes()),
                };
            }
            if lines.next().is_some() {
                return Err(ProblemKind::RequestInvalid.into());
            }
        }
        builder = match &config.body_hook {
            Some(canonical) => {
                let canonical = canonical(parts, &body.bytes);
                builder.body_custom_sha256(Sha256::digest(canonical).into())
            }
            None => builder.body_sha256(body.sha256),
        };
        for name in &config.bound_headers {
            builder = builder.bound_header(name, &parts.headers);
        }
        Ok(Claim {
            id,
            token: ClaimToken::random(),
            fingerprint: builder.finish(),
            stale_after: config.stale_after,
            ttl: config.ttl,
        })
    }
}

impl Config {
    /// Answers with a problem.
    pub(crate) fn render<R>(&self, problem: &Problem) -> Response<ResponseBody<R>> {
        let Some(hook) = &self.problem_hook else {
            return problem.to_response();
        };
        let mut response = hook(problem).map(ResponseBody::from);
        if response.status().is_success() {
            *response.status_mut() = problem.status();
        }
        if let Some(seconds) = problem.retry_after() {
            let seconds = HeaderValue::from(u16::from(seconds));
            response
                .headers_mut()
                .entry(header::RETRY_AFTER)
                .or_insert(seconds);
        }
        response.extensions_mut().insert(problem.clone());
        response
    }

    /// Answers an arrival that did not get the claim with what the record says.
    fn turn_away<R>(
        &self,
        id: &RecordId,
        asking: Option<&Parts>,
        outcome: ClaimOutcome,
    ) -> Response<ResponseBody<R>> {
        let problem = match outcome {
            ClaimOutcome::Completed(stored) => match self.replay(id, asking, stored) {
                Ok(response) => return response,
                Err(problem) => problem,
            },
            // Acquired by somebody whose claim this arrival then lost.
            ClaimOutcome::InProgress | ClaimOutcome::Acquired { .. } => {
                ProblemKind::InProgress.into()
            }
            ClaimOutcome::Mismatch => {
                Problem::from(ProblemKind::KeyReused).with_status(self.mismatch_status)
            }
            ClaimOutcome::Tombstone => ProblemKind::Gone.into(),
        };
        self.render(&problem)
    }

    /// Decodes a stored response, and asks whether it may be replayed.
    fn replay<R>(
        &self,
        id: &RecordId,
        asking: Option<&Parts>,
        stored: StoredResponse,
    ) -> Result<Response<ResponseBody<R>>, Problem> {
        let content = match (&self.codec, stored.content) {
            (Some(codec), Some(content)) => Some(codec.decode(id, content).map_err(|error| {
                tracing::error!(%error, "stored result cannot be decoded");
                Problem::from(ProblemKind::RecordUnreadable)
            })?),
            (_, content) => content,
        };
        let response = replay(stored.status, content.as_ref(), &self.headers)?;
        if let (Some(refuse), Some(asking)) = (&self.replay_hook, asking) {
            let (head, body) = response.into_parts();
            return Ok(match refuse(asking, &head) {
                Some(refusal) => refusal.map(ResponseBody::from),
                None => Response::from_parts(head, body),
            });
        }
        Ok(response)
    }
}

impl<I: Clone, S: Clone> Clone for Idempotency<I, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: self.shared.clone(),
        }
    }
}

impl<I: fmt::Debug, S> fmt::Debug for Idempotency<I, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
