//! What the behaviours are written with.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tower_idempotency_core::{
    Claim, ClaimOutcome, ClaimToken, Completion, Fingerprint, IdempotencyKey, Lease, Operation,
    Owner, Record, RecordId, RecordState, ResourceRef, Store, StoreError, StoredResponse,
};

use crate::Fixture;

/// The time that [`claim`] gives its claims.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(300);

/// What a claim or record may be younger than its limit by, with a clock that runs.
pub(crate) const MARGIN: Duration = Duration::from_secs(60);

/// For ever.
pub(crate) const YEARS: Duration = Duration::from_secs(20 * 365 * 24 * 3600);

/// No answer may take longer because of somebody else's uncommitted work.
pub(crate) const PROMPT: Duration = Duration::from_secs(2);

/// What is in doubt must be settled by then.
pub(crate) const SETTLED: Duration = Duration::from_secs(20);

/// Asserts that a value has a shape, and shows it where it has not.
macro_rules! ensure {
    ($value:expr, $shape:pat $(if $guard:expr)?, $($why:tt)+) => {{
        match &$value {
            $shape $(if $guard)? => {}
            other => panic!("{}: got {other:?}", format_args!($($why)+)),
        }
    }};
}
pub(crate) use ensure;

pub(crate) fn id(owner: &str, operation: &str, key: &str) -> RecordId {
    RecordId {
        owner: Owner::new(owner).expect("a valid owner"),
        operation: Operation::new(operation).expect("a valid operation"),
        key: IdempotencyKey::from_text(key).expect("a valid key"),
    }
}

pub(crate) fn fingerprint(text: &str) -> Fingerprint {
    Fingerprint::builder(&Method::POST).path(text).finish()
}

/// A claim of that key, with a fresh token: every call is another arrival of one request.
pub(crate) fn claim(key: &str) -> Claim {
    claim_of(id("owner", "publish", key))
}

pub(crate) fn claim_of(id: RecordId) -> Claim {
    Claim {
        stale_after: STALE_AFTER,
        ..Claim::new(id, fingerprint("/posts"))
    }
}

/// An arrival of the same key with another request.
pub(crate) fn other_request(key: &str) -> Claim {
    Claim {
        fingerprint: fingerprint("/others"),
        ..claim(key)
    }
}

pub(crate) fn with_ttl(claim: Claim, ttl: Duration) -> Claim {
    Claim {
        ttl: Some(ttl),
        ..claim
    }
}

/// The same claim in the hands of somebody whose token the record does not bear.
pub(crate) fn foreign(claim: &Claim) -> Claim {
    Claim {
        token: ClaimToken::random(),
        ..claim.clone()
    }
}

pub(crate) fn created(body: &str) -> StoredResponse {
    StoredResponse::kept(
        StatusCode::CREATED,
        "content-type: text/plain\n",
        body.to_owned(),
    )
}

pub(crate) fn created_with_ref(body: &str, resource_ref: &str) -> StoredResponse {
    created(body).with_resource_ref(Some(ResourceRef::new(resource_ref)))
}

/// What is answered of a completed record: the reference is not part of it.
pub(crate) fn same_answer(left: &StoredResponse, right: &StoredResponse) -> bool {
    left.status == right.status && left.content == right.content
}

/// The answer to an arrival.
pub(crate) async fn answer<S: Store>(store: &S, claim: &Claim) -> ClaimOutcome {
    store.claim(claim).await.expect("a claim gets an answer")
}

/// Claims a key that must be free.
pub(crate) async fn acquire<S: Store>(store: &S, claim: &Claim) {
    ensure!(
        answer(store, claim).await,
        ClaimOutcome::Acquired { taken_over: false },
        "a free key is acquired"
    );
}

/// Claims a key whose claim must be stale.
pub(crate) async fn take_over<S: Store>(store: &S, claim: &Claim) {
    ensure!(
        answer(store, claim).await,
        ClaimOutcome::Acquired { taken_over: true },
        "a stale claim is taken over"
    );
}

/// Completes a claim whose handler wrote nothing.
pub(crate) async fn complete<S: Store>(store: &S, claim: &Claim, response: &StoredResponse) {
    let tx = store.lend(Lease::claimed(claim.clone()));
    ensure!(
        store.complete(&tx, claim, response).await,
        Completion::Committed,
        "a claim is completed by its owner"
    );
}

/// Claims and completes a key.
pub(crate) async fn finish<S: Store>(store: &S, claim: &Claim, response: &StoredResponse) {
    acquire(store, claim).await;
    complete(store, claim, response).await;
}

/// Begins the transaction of a claim with an effect of that name.
pub(crate) async fn begin<F: Fixture>(f: &F, claim: &Claim, what: &str) -> <F::Store as Store>::Tx {
    let tx = f.store().lend(Lease::claimed(claim.clone()));
    f.write(&tx, what).await.expect("a handler can write");
    tx
}

pub(crate) async fn lookup<S: Store>(store: &S, id: &RecordId) -> Option<Record> {
    store.lookup(id).await.expect("a record can be looked up")
}

/// Asserts that the record is that claim's, and alive.
pub(crate) async fn still_running<S: Store>(store: &S, claim: &Claim) {
    ensure!(
        lookup(store, &claim.id).await.map(|record| record.state),
        Some(RecordState::Claimed { token, stale: false, .. }) if *token == claim.token,
        "the record is still its owner's, and alive"
    );
}

/// Asserts that an arrival of the same request is answered with that response.
pub(crate) async fn answers<S: Store>(store: &S, id: &RecordId, response: &StoredResponse) {
    match answer(store, &claim_of(id.clone())).await {
        ClaimOutcome::Completed(stored) => assert!(
            same_answer(&stored, response),
            "a completed request is answered with its result: {} instead of {}",
            shown(&stored),
            shown(response)
        ),
        outcome => panic!("a completed request is answered with its result: got {outcome:?}"),
    }
}

/// A response in a few words: its bytes may be many.
fn shown(response: &StoredResponse) -> String {
    let status = response.status.as_u16();
    let Some(content) = &response.content else {
        return format!("{status}, not kept");
    };
    let [headers, body] = [&content.headers, &content.body].map(|bytes| {
        let start = &bytes[..bytes.len().min(32)];
        format!("{} bytes \"{}..\"", bytes.len(), start.escape_ascii())
    });
    format!("{status} with headers of {headers} and a body of {body}")
}

pub(crate) async fn effects<F: Fixture>(f: &F, what: &str, count: u64, why: &str) {
    let found = f.effects(what).await;
    assert_eq!(found, count, "{why}: effects of {what:?}");
}

/// Whether an arrival was told to come again without anything having been done.
pub(crate) fn told_to_retry(error: &StoreError) -> bool {
    error.is_unavailable() || error.is_conflict()
}

/// Asserts that a future ends in time.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} took longer than {limit:?}"),
    }
}

/// Repeats a step for as long as the store says that it is busy, as the layer does.
pub(crate) async fn insist<T, Fut>(what: &str, step: impl Fn() -> Fut + Send + Sync) -> T
where
    T: Send,
    Fut: Future<Output = Result<T, StoreError>> + Send,
{
    let tried = async {
        loop {
            match step().await {
                Ok(done) => return done,
                Err(error) if told_to_retry(&error) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{what} failed: {error:?}"),
            }
        }
    };
    within(SETTLED, what, tried).await
}

/// Rounds in which a step is stopped, and after how many polls. Each is stopped several times: a
/// driver is quicker when it has prepared its statements.
pub(crate) fn stops() -> impl Iterator<Item = (usize, usize)> {
    (0..24).map(|round| (round, 1 + round % 6))
}

/// Polls a future at most that often: `None` when it was still pending then.
pub(crate) async fn poll_at_most<T>(
    polls: usize,
    future: impl Future<Output = T> + Send,
) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if left <= 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Lets 64 arrivals of one key go at once, half of them through the second handle, and returns the
/// claims that won. Whoever did not is told that it is in progress, or to come again.
pub(crate) async fn race<F: Fixture>(f: &F, arrival: impl Fn() -> Claim) -> Vec<Claim> {
    const RACERS: usize = 64;

    let stores = [f.store().clone(), f.second().await];
    let start = Arc::new(Barrier::new(RACERS));
    let mut racers = JoinSet::new();
    for racer in 0..RACERS {
        let (store, claim, start) = (stores[racer % 2].clone(), arrival(), Arc::clone(&start));
        racers.spawn(async move {
            start.wait().await;
            let outcome = store.claim(&claim).await;
            (claim, outcome)
        });
    }
    let mut winners = Vec::new();
    for (claim, outcome) in racers.join_all().await {
        match outcome {
            Ok(ClaimOutcome::Acquired { .. }) => winners.push(claim),
            Ok(ClaimOutcome::InProgress) => {}
            Err(error) if told_to_retry(&error) => {}
            other => panic!("a racing arrival got {other:?}"),
        }
    }
    winners
}

/// Asserts that a race had one winner, and that the record is the winner's.
pub(crate) async fn one_winner<F: Fixture>(f: &F, winners: &[Claim]) {
    let [winner] = winners else {
        panic!("racing claims have one winner: got {}", winners.len());
    };
    still_running(f.store(), winner).await;
}
