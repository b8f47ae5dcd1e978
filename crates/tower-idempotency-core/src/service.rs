//! The service: the way of a request, in order.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use http_body::Body;
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
use crate::response::replay;
use crate::route::original_target;
use crate::store::Store;
use crate::work::{self, Arrival, Attempt};

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
        ResponseFuture::new(async move { shared.answer(inner, request).await })
    }
}

/// Why a request is not claimed.
enum Unclaimed {
    /// It goes to the handler, with what its transaction is to know.
    Pass(Lease),
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
            Err(Unclaimed::Refuse(problem)) => return Ok(problem.to_response()),
            Err(Unclaimed::Pass(lease)) => {
                let request = Request::from_parts(parts, body);
                return self.run_unclaimed(inner, request, lease).await;
            }
        };
        let read = match body::read(body, self.config.max_request_body).await {
            Ok(read) => read,
            Err(problem) => return Ok(problem.to_response()),
        };
        let claim = match self.claim(id, &parts, &read) {
            Ok(claim) => claim,
            Err(problem) => return Ok(problem.to_response()),
        };
        let Some(entry) = self.gate.enter() else {
            return Ok(Problem::from(ProblemKind::Busy).to_response());
        };
        let config = Arc::clone(&self.config);
        let arrival = Arrival {
            inner,
            parts,
            body: read.bytes,
            claim,
        };
        match work::attempt(self, entry, arrival).await {
            Attempt::Answered(answer) => answer,
            Attempt::Turned(outcome) => Ok(config.turn_away(&outcome)),
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
            return Err(Unclaimed::Pass(Lease::unclaimed()));
        }
        let Some(operation) = config.naming.of(parts) else {
            return Err(Unclaimed::Pass(Lease::refused(
                "no route matched and the operation has no name; give it one with `.operation(..)`",
            )));
        };
        let key =
            IdempotencyKey::from_headers(&parts.headers, &config.key_header, config.key_grammar);
        let key = match key {
            Ok(key) => key,
            Err(KeyError::Missing) if !config.key_required => {
                return Err(Unclaimed::Pass(Lease::unclaimed()));
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
        let mut builder = Fingerprint::builder(&parts.method)
            .query(target.query())
            .body_sha256(body.sha256);
        if config.path_counts {
            builder = builder.path(target.path());
        }
        for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING] {
            let mut lines = parts.headers.get_all(&name).iter();
            if let Some(line) = lines.next() {
                builder = builder.content_header(&name, line.as_bytes());
            }
            if lines.next().is_some() {
                return Err(ProblemKind::RequestInvalid.into());
            }
        }
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
    /// Answers an arrival that did not get the claim with what the record says.
    pub(crate) fn turn_away<R>(&self, outcome: &ClaimOutcome) -> Response<ResponseBody<R>> {
        let problem = match outcome {
            ClaimOutcome::Completed(stored) => match replay(stored, &self.headers) {
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
        problem.to_response()
    }

    /// What the first client is not to see: a mark that its handler made up.
    pub(crate) fn strip_mark<R>(&self, response: &mut Response<R>) {
        response.headers_mut().remove(&self.headers.replayed);
    }

    /// Whether a status commits.
    pub(crate) fn is_success(status: StatusCode) -> bool {
        status.is_success()
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
