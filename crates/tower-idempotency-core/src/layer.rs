//! The layer, which is its own builder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Method, Response, StatusCode, response};
use tower_layer::Layer;

use crate::gate::Gate;
use crate::headers::{HeaderPolicy, IDEMPOTENCY_KEY};
use crate::hints::Hints;
use crate::key::KeyGrammar;
use crate::method::Methods;
use crate::naming::Naming;
use crate::operation::Operation;
use crate::policy::{BodyHook, Codec, ProblemHook, ReplayHook, Scope, ScopeHook};
use crate::problem::Problem;
use crate::response::CaptureLimits;
use crate::service::Idempotency;
use crate::store::{IntoStore, Store};

/// Turns every arrival of one key into one write.
///
/// Cheap to clone; clones share the store, the permits and the tracker of running work. Setters
/// never fail; each says its default. Durations of more than a century are taken for one.
#[must_use = "a layer does nothing until it is put around a service"]
pub struct IdempotencyLayer<S> {
    store: S,
    config: Arc<Config>,
    gate: Arc<Gate>,
}

/// Everything that can be set.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) methods: Methods,
    pub(crate) naming: Naming,
    pub(crate) aliases: Vec<Operation>,
    pub(crate) key_header: HeaderName,
    pub(crate) key_grammar: KeyGrammar,
    pub(crate) key_required: bool,
    pub(crate) stale_after: Duration,
    pub(crate) renew_up_to: Option<Duration>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) mismatch_status: StatusCode,
    pub(crate) max_request_body: u64,
    pub(crate) capture: CaptureLimits,
    pub(crate) store_timeout: Duration,
    pub(crate) headers: HeaderPolicy,
    pub(crate) path_counts: bool,
    pub(crate) bound_headers: Vec<HeaderName>,
    pub(crate) wait: Duration,
    pub(crate) body_hook: Option<BodyHook>,
    pub(crate) codec: Option<Arc<dyn Codec>>,
    pub(crate) problem_hook: Option<ProblemHook>,
    pub(crate) replay_hook: Option<ReplayHook>,
    pub(crate) scope: Option<ScopeHook>,
    pub(crate) hints: Hints,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            methods: Methods::default(),
            naming: Naming::default(),
            aliases: Vec::new(),
            key_header: IDEMPOTENCY_KEY,
            key_grammar: KeyGrammar::Compatible,
            key_required: true,
            stale_after: Duration::from_secs(300),
            renew_up_to: None,
            ttl: None,
            mismatch_status: StatusCode::CONFLICT,
            max_request_body: 2 << 20,
            capture: CaptureLimits {
                bytes: 1 << 20,
                time: Duration::from_secs(10),
            },
            store_timeout: Duration::from_secs(30),
            headers: HeaderPolicy::default(),
            path_counts: true,
            bound_headers: Vec::new(),
            wait: Duration::ZERO,
            body_hook: None,
            codec: None,
            problem_hook: None,
            replay_hook: None,
            scope: None,
            hints: Hints::default(),
        }
    }
}

/// A century: longer durations would overflow the clocks.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// How many requests run at once, unless told otherwise.
const MAX_IN_FLIGHT: usize = 1024;

impl<S: Store> IdempotencyLayer<S> {
    /// Makes a layer over a connection pool, or whatever else can become a store.
    pub fn new(store: impl IntoStore<S>) -> Self {
        Self::with_store(store.into_store())
    }

    /// Makes a layer over a store.
    pub fn with_store(store: S) -> Self {
        Self {
            store,
            config: Arc::default(),
            gate: Arc::new(Gate::new(MAX_IN_FLIGHT)),
        }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    fn set(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Names the operation of every covered request. Default: see [`Operation::of_route`].
    ///
    /// # Panics
    ///
    /// As [`Operation::from_static`], where a literal is given.
    pub fn operation(self, operation: impl Into<Operation>) -> Self {
        let operation = operation.into();
        self.set(|config| config.naming.always(operation))
    }

    /// Names the operation of one method on one route of the router, as the route is written there.
    ///
    /// # Panics
    ///
    /// As [`Operation::from_static`], where a literal is given.
    pub fn operation_for(
        self,
        method: Method,
        route: impl Into<String>,
        operation: impl Into<Operation>,
    ) -> Self {
        let (route, operation) = (route.into(), operation.into());
        self.set(|config| config.naming.for_route(method, route, operation))
    }

    /// Names operations by a function of the request's head. Where it returns `None`, the
    /// default does.
    pub fn operation_with(
        self,
        name: impl Fn(&Parts) -> Option<Operation> + Send + Sync + 'static,
    ) -> Self {
        self.set(|config| config.naming.with(Arc::new(name)))
    }

    /// Looks an earlier name of the operation up too, after a refactoring. Costs one round trip
    /// for each new key. Default: none.
    ///
    /// Rename in two deployments: first the old name with the new one as its alias, then the new
    /// name with the old one as its alias. In between, either side sees what the other claimed. A
    /// handler that deletes must bury under each name that the operation has had.
    ///
    /// # Panics
    ///
    /// As [`Operation::from_static`], where a literal is given.
    pub fn operation_alias(self, earlier: impl Into<Operation>) -> Self {
        let earlier = earlier.into();
        self.set(|config| config.aliases.push(earlier))
    }

    /// The methods that are covered. Default: POST and PATCH. OPTIONS and HEAD never are. Where another
    /// one that is not safe comes with a key, the log says once that it is not protected.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.set(|config| config.methods = Methods::new(methods))
    }

    /// Lets requests without a key run, unprotected. Default: they are answered 400.
    pub fn optional(self) -> Self {
        self.set(|config| config.key_required = false)
    }

    /// The header that carries the key. Default: `Idempotency-Key`.
    pub fn key_header(self, name: HeaderName) -> Self {
        self.set(|config| config.key_header = name)
    }

    /// Refuses bare keys: only the quoted strings of the IETF draft. Default: both.
    pub fn strict_keys(self) -> Self {
        self.set(|config| config.key_grammar = KeyGrammar::Strict)
    }

    /// How long a claim lives without a sign of life before a retry may take it over.
    /// Default: 5 minutes. At least 1 second.
    ///
    /// Longer than any handler runs, or use [`renew_claims`](Self::renew_claims).
    pub fn stale_after(self, duration: Duration) -> Self {
        self.set(|config| config.stale_after = duration.clamp(Duration::from_secs(1), FOREVER))
    }

    /// Keeps the claim of a running handler fresh, every third of `stale_after`, until its
    /// transaction begins. Default: off.
    ///
    /// After `max` the handler is dropped, rolled back and answered 504. With it a take-over means
    /// dead, not slow, and `stale_after` can be short: as long as a transaction lasts.
    pub fn renew_claims(self, max: Duration) -> Self {
        self.set(|config| config.renew_up_to = Some(max.min(FOREVER)))
    }

    /// Forgets completed records after that time. Default: they are kept for ever.
    ///
    /// Only for operations whose retries cannot arrive later: one that does runs again.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.set(|config| config.ttl = Some(ttl.min(FOREVER)))
    }

    /// The status for a key that was used for another request. Default: 409; the IETF draft
    /// wants 422. Whatever is no client error is taken for 409.
    pub fn mismatch_status(self, status: u16) -> Self {
        let status = StatusCode::from_u16(status)
            .ok()
            .filter(StatusCode::is_client_error)
            .unwrap_or(StatusCode::CONFLICT);
        self.set(|config| config.mismatch_status = status)
    }

    /// The largest request body, in bytes. Default: 2 MiB. It is held in memory.
    pub fn max_request_body(self, bytes: u64) -> Self {
        self.set(|config| config.max_request_body = bytes)
    }

    /// The largest response body that is kept, in bytes. Default: 1 MiB. A larger one is streamed
    /// to the first client, and later arrivals are answered 410.
    pub fn max_response_body(self, bytes: usize) -> Self {
        self.set(|config| config.capture.bytes = bytes)
    }

    /// How long a response body may take to be kept. Default: 10 seconds.
    pub fn capture_within(self, duration: Duration) -> Self {
        self.set(|config| config.capture.time = duration.min(FOREVER))
    }

    /// How long a step at the store may take. Default: 30 seconds. A claim that takes longer is
    /// answered 503; a commit that does is in doubt, and resolved.
    pub fn store_timeout(self, duration: Duration) -> Self {
        self.set(|config| config.store_timeout = duration.min(FOREVER))
    }

    /// How many requests run at once; one more is answered 503. Default: 1,024.
    ///
    /// Clones that were made before do not share the new permits.
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.gate = Arc::new(Gate::new(requests));
        self
    }

    /// Keeps a further response header. `protocol.md` lists the ones that are kept, and the ones
    /// that never are, whatever is asked here.
    pub fn keep_header(self, name: HeaderName) -> Self {
        self.set(|config| config.headers.keep(name))
    }

    /// The header that marks a replay. Default: `Idempotent-Replayed`.
    pub fn replay_header(self, name: HeaderName) -> Self {
        self.set(|config| config.headers.replayed = name)
    }

    /// Leaves the path out of the fingerprint. Default: it counts.
    ///
    /// For a named operation whose path carries nothing: a move to `/v2` then does not turn late
    /// retries into conflicts.
    pub fn ignore_path(self) -> Self {
        self.set(|config| config.path_counts = false)
    }

    /// Makes a further request header part of the fingerprint. Default: Content-Type and
    /// Content-Encoding alone.
    pub fn bind_header(self, name: HeaderName) -> Self {
        self.set(|config| config.bound_headers.push(name))
    }

    /// Makes the fingerprint of what `canonical` makes of a body, instead of the raw bytes.
    /// Default: the raw bytes.
    ///
    /// For clients whose retries write the same request differently: with a new multipart
    /// boundary, or with the members of a JSON object in another order. What `canonical` leaves
    /// out does not count any more; for a body that it does not understand, it should return the
    /// body. The boundary in the Content-Type of a multipart body does not count either.
    pub fn fingerprint_body_with(
        self,
        canonical: impl Fn(&Parts, &Bytes) -> Bytes + Send + Sync + 'static,
    ) -> Self {
        self.set(|config| config.body_hook = Some(Arc::new(canonical)))
    }

    /// Lets arrivals of a running key wait for its result, up to `patience`, before they are
    /// answered 409. Default: they are answered at once.
    ///
    /// Who waits holds no connection and no permit, but the body of its request; as many may wait
    /// as may run. They are woken in this process, and look again after 50 ms to 1 s for results
    /// of others.
    pub fn wait_for_in_progress(self, patience: Duration) -> Self {
        self.set(|config| config.wait = patience.min(FOREVER))
    }

    /// Asks before a result is replayed. Default: whoever has the owner's key gets it.
    ///
    /// `refuse` sees the head of the arriving request, and of the stored response, and may return
    /// a response of its own instead, for instance where rights were revoked since.
    pub fn authorize_replay_with(
        self,
        refuse: impl Fn(&Parts, &response::Parts) -> Option<Response<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        self.set(|config| config.replay_hook = Some(Arc::new(refuse)))
    }

    /// Changes what is stored of responses, and back: see [`Codec`]. Default: as it is.
    ///
    /// Records that were stored with another codec, or with none, must remain readable to it.
    pub fn codec(self, codec: impl Codec) -> Self {
        self.set(|config| config.codec = Some(Arc::new(codec)))
    }

    /// Renders the layer's own problems otherwise than as `application/problem+json`; not those that
    /// a handler or an extractor answers. The [`Problem`] stays in the
    /// response's extensions, and `Retry-After` is set where it is due.
    ///
    /// The status should remain the problem's: clients act on it. A 2xx is replaced by it.
    pub fn problem_with(
        self,
        render: impl Fn(&Problem) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.set(|config| config.problem_hook = Some(Arc::new(render)))
    }

    /// Carries task-locals and the like into the task in which the handler runs.
    ///
    /// `hook` is called where the service is called, and returns what wraps the handler's future.
    /// Where that panics or ends early, the request is rolled back and its key freed.
    ///
    /// ```
    /// # use tower_idempotency_core::{IdempotencyLayer, MemoryStore};
    /// tokio::task_local! { static TENANT: u32; }
    ///
    /// let layer = IdempotencyLayer::with_store(MemoryStore::new()).scope_with(|| {
    ///     let tenant = TENANT.try_with(|tenant| *tenant).unwrap_or_default();
    ///     Box::new(move |work| Box::pin(TENANT.scope(tenant, work)))
    /// });
    /// ```
    pub fn scope_with(self, hook: impl Fn() -> Scope + Send + Sync + 'static) -> Self {
        self.set(|config| config.scope = Some(Arc::new(hook)))
    }

    /// Refuses new work with 503, waits up to `patience` for what runs, then drops it, rolled back
    /// and freed. Returns how much still runs, normally 0.
    ///
    /// To be awaited after the server's graceful shutdown, which does not wait for handlers whose
    /// clients have gone, and before the pool is closed. There is no way back.
    pub async fn drain(&self, patience: Duration) -> usize {
        self.gate.drain(patience, self.config.store_timeout).await
    }
}

impl<I, S: Store> Layer<I> for IdempotencyLayer<S> {
    type Service = Idempotency<I, S>;

    fn layer(&self, inner: I) -> Self::Service {
        Idempotency::new(
            inner,
            self.store.clone(),
            Arc::clone(&self.config),
            Arc::clone(&self.gate),
        )
    }
}

impl<S: Clone> Clone for IdempotencyLayer<S> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            config: Arc::clone(&self.config),
            gate: Arc::clone(&self.gate),
        }
    }
}

impl<S> fmt::Debug for IdempotencyLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("methods", &self.config.methods)
            .field("stale_after", &self.config.stale_after)
            .field("ttl", &self.config.ttl)
            .finish_non_exhaustive()
    }
}
