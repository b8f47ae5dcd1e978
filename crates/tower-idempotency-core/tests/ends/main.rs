//! How a request ends, for every way in which a store can answer: what the client is told, and what
//! is done with the key. No database: stores that do so are in the end-to-end tests.

mod earlier_names;
mod renewing;
mod store;
mod waiting;

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::task::JoinError;
use tokio::time::sleep;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_idempotency_core::{
    Claim, ClaimOutcome, ClaimToken, Completion, Fingerprint, IdempotencyLayer, Lease, Owner,
    Problem, Record, RecordState, Resolution, ResponseBody, Rollback, Store, StoreError,
    StoredResponse,
};

use crate::store::{Claims, Commits, Completes, Looks, Resolves, Script, Scripted};

type Answer = Response<ResponseBody<Full<Bytes>>>;

const CREATED: StatusCode = StatusCode::CREATED;
const SHARED: [&str; 2] = ["claim", "complete"];

/// Sends a request through a layer to a handler that answers that status.
async fn sent<S: Store, F>(
    layer: &IdempotencyLayer<S>,
    key: Option<&str>,
    handler: impl Fn() -> F + Clone + Send + 'static,
) -> Answer
where
    F: Future<Output = StatusCode> + Send + 'static,
{
    let service = layer.layer(service_fn(move |_: Request<Full<Bytes>>| {
        let status = handler();
        async move {
            let mut response = Response::new(Full::new(Bytes::from_static(b"mine")));
            *response.status_mut() = status.await;
            Ok::<_, Infallible>(response)
        }
    }));
    let mut request = Request::builder().method(Method::POST).uri("/");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let mut request = request.body(Full::new(Bytes::new())).expect("a request");
    request.extensions_mut().insert(Owner::shared());
    let answered = service.oneshot(request).await;
    answered.unwrap_or_else(|never| match never {})
}

/// What a client is told, in short.
fn told(response: &Answer) -> String {
    match response.extensions().get::<Problem>() {
        Some(problem) => format!("{} {:?}", problem.status().as_u16(), problem.kind()),
        None if response.headers().contains_key("idempotent-replayed") => "replay".to_owned(),
        None => response.status().as_u16().to_string(),
    }
}

/// A request whose handler answers that status; then all that is done after the answer.
async fn send_with(
    script: Script,
    key: Option<&'static str>,
    handler: fn() -> StatusCode,
) -> Result<(String, Vec<&'static str>), JoinError> {
    let store = Scripted::new(script);
    let layer = IdempotencyLayer::with_store(store.clone())
        .operation("publish")
        .optional();
    let answered = async move { sent(&layer, key, move || async move { handler() }).await };
    let response = tokio::spawn(answered).await?;
    // In paused time: all that is left to do is done.
    sleep(Duration::from_secs(60)).await;
    Ok((told(&response), store.asked()))
}

async fn send(script: Script) -> (String, Vec<&'static str>) {
    let sent = send_with(script, Some("k"), || CREATED).await;
    sent.expect("no panic")
}

/// The fingerprint that all of these requests have.
fn fingerprint() -> Fingerprint {
    use sha2::Digest as _;

    Fingerprint::builder(&Method::POST)
        .path("/")
        .body_sha256(sha2::Sha256::digest(b"").into())
        .finish()
}

fn record(state: RecordState) -> Record {
    Record {
        state,
        claimed_at: SystemTime::UNIX_EPOCH,
        resource_ref: None,
    }
}

fn completed(token: ClaimToken, fingerprint: Fingerprint) -> Record {
    record(RecordState::Completed {
        token,
        fingerprint,
        response: StoredResponse::kept(CREATED, "", "theirs"),
        expired: false,
    })
}

fn claimed(token: ClaimToken, stale: bool) -> Record {
    record(RecordState::Claimed {
        token,
        fingerprint: fingerprint(),
        stale,
    })
}

fn theirs() -> ClaimToken {
    ClaimToken::from_bytes([7; 16])
}

fn down<T>() -> Result<T, StoreError> {
    Err(StoreError::unavailable("down"))
}

/// R50: only a commit that the store vouches for is answered with the handler's own response.
#[tokio::test(start_paused = true)]
async fn a_commit_is_answered() {
    let (told, asked) = send(Script::GOOD).await;
    assert_eq!((&*told, &asked[..]), ("201", &SHARED[..]));
}

/// R61: a completion that certainly failed frees the key, and is told by what a retry can do.
#[tokio::test(start_paused = true)]
async fn a_failed_completion_frees() {
    let cases: [(Completes, &str); 4] = [
        (
            |_| Some(Completion::RolledBack(StoreError::conflict("x"))),
            "503 ConflictRetry",
        ),
        (
            |_| Some(Completion::RolledBack(StoreError::unavailable("x"))),
            "503 ConflictRetry",
        ),
        (
            |_| Some(Completion::RolledBack(StoreError::encoding("x"))),
            "500 RecordUnreadable",
        ),
        (
            |_| Some(Completion::RolledBack(StoreError::other("x"))),
            "500 CommitFailed",
        ),
    ];
    for (complete, expected) in cases {
        let (told, asked) = send(Script {
            complete,
            ..Script::GOOD
        })
        .await;
        assert_eq!(told, expected);
        assert_eq!(asked, ["claim", "complete", "free"], "{expected}");
    }
}

/// A record that is somebody else's, or may be, is neither freed nor marked.
fn assert_left_alone(asked: &[&str]) {
    assert!(
        !asked.contains(&"free") && !asked.contains(&"mark"),
        "{asked:?}"
    );
}

/// R60: who lost the claim answers with the record that is there, and frees nothing.
#[tokio::test(start_paused = true)]
async fn a_lost_claim_answers_with_the_heirs_record() {
    let cases: [(Looks, &str); 7] = [
        (|_| Ok(Some(completed(theirs(), fingerprint()))), "replay"),
        (
            |_| Ok(Some(completed(theirs(), Fingerprint::from_stored("hs1:")))),
            "409 KeyReused",
        ),
        (|_| Ok(Some(claimed(theirs(), false))), "409 InProgress"),
        (|_| Ok(Some(claimed(theirs(), true))), "409 InProgress"),
        (|_| Ok(Some(record(RecordState::Tombstone))), "410 Gone"),
        (|_| Ok(None), "409 InProgress"),
        (|_| down(), "503 CommitUnknown"),
    ];
    for (lookup, expected) in cases {
        let complete = |_: &_| Some(Completion::Lost);
        let (told, asked) = send(Script {
            complete,
            lookup,
            ..Script::GOOD
        })
        .await;
        assert_eq!(told, expected);
        assert_left_alone(&asked);
    }
}

/// R64: a transaction that somebody else ended is marked, for as long as it takes, and never freed.
#[tokio::test(start_paused = true)]
async fn a_lost_transaction_is_marked() {
    let complete = |_: &_| Some(Completion::NotOurs);
    let (told, asked) = send(Script {
        complete,
        ..Script::GOOD
    })
    .await;
    assert_eq!(told, "500 TransactionLost");
    assert_eq!(asked, ["claim", "complete", "mark"]);

    let mark = || down();
    let (told, asked) = send(Script {
        complete,
        mark,
        ..Script::GOOD
    })
    .await;
    assert_eq!(told, "500 TransactionLost");
    let marks = asked.iter().filter(|asked| **asked == "mark").count();
    assert!(marks > 3, "marking goes on after the answer: {marks}");
    assert!(!asked.contains(&"free"), "{asked:?}");
}

/// R63: a leaked transaction is told at once; the key is free when it is rolled back.
#[tokio::test(start_paused = true)]
async fn a_leak_is_reclaimed() {
    let complete = |_: &_| Some(Completion::Leaked);
    let (told, asked) = send(Script {
        complete,
        ..Script::GOOD
    })
    .await;
    assert_eq!(told, "500 TransactionLeaked");
    assert_eq!(asked, ["claim", "complete", "reclaim", "free"]);

    let reclaim = Rollback::NotOurs;
    let (_, asked) = send(Script {
        complete,
        reclaim,
        ..Script::GOOD
    })
    .await;
    assert_eq!(asked, ["claim", "complete", "reclaim", "mark"]);
}

/// R62: a commit in doubt is a success only by the record's own proof.
#[tokio::test(start_paused = true)]
async fn a_commit_in_doubt_is_resolved() {
    let cases: [(Resolves, &str); 6] = [
        (
            |_| Ok(Resolution::Committed(StoredResponse::not_kept(CREATED))),
            "201",
        ),
        (|_| Ok(Resolution::Freed), "503 ConflictRetry"),
        (|_| Ok(Resolution::Absent), "409 InProgress"),
        (
            |_| Ok(Resolution::Other(completed(theirs(), fingerprint()))),
            "replay",
        ),
        (
            |_| Ok(Resolution::Other(claimed(theirs(), false))),
            "409 InProgress",
        ),
        (|_| down(), "503 CommitUnknown"),
    ];
    for (resolve, expected) in cases {
        let complete = |_: &_| Some(Completion::Unknown(StoreError::other("cut")));
        let (told, asked) = send(Script {
            complete,
            resolve,
            ..Script::GOOD
        })
        .await;
        assert_eq!(told, expected);
        assert_left_alone(&asked);
    }
}

/// R61, R62, R64: a completion that takes too long is judged by how far it had got.
#[tokio::test(start_paused = true)]
async fn a_hanging_completion_is_judged_by_its_phase() {
    let resolve = |_: &Claim| Ok(Resolution::Freed);
    let silent = Script {
        complete: |_| None,
        resolve,
        ..Script::GOOD
    };
    assert_eq!(send(silent).await.1, ["claim", "complete", "resolve"]);

    let committing = |lease: &Lease| {
        lease.proving();
        lease.committing();
        None
    };
    let (_, asked) = send(Script {
        complete: committing,
        ..silent
    })
    .await;
    assert_eq!(asked, ["claim", "complete", "resolve"]);

    let proving = |lease: &Lease| {
        lease.proving();
        None
    };
    let (told, asked) = send(Script {
        complete: proving,
        ..silent
    })
    .await;
    assert_eq!(told, "503 ConflictRetry");
    assert_eq!(asked, ["claim", "complete", "free"]);

    let unmatched = |lease: &Lease| {
        lease.unmatched();
        None
    };
    let cases: [(Looks, bool); 6] = [
        (|mine| Ok(Some(claimed(mine, false))), true),
        (|_| Ok(None), true),
        (|_| down(), true),
        (|_| Ok(Some(claimed(theirs(), false))), false),
        (|_| Ok(Some(completed(theirs(), fingerprint()))), false),
        (|_| Ok(Some(record(RecordState::Tombstone))), false),
    ];
    for (lookup, marked) in cases {
        let script = Script {
            complete: unmatched,
            lookup,
            ..silent
        };
        let (told, asked) = send(script).await;
        assert_eq!(asked.contains(&"mark"), marked, "{told}: {asked:?}");
        assert_eq!(told == "500 TransactionLost", marked, "{told}: {asked:?}");
        assert!(!asked.contains(&"free"), "{asked:?}");
    }
}

/// R54, R60, R63, R64: what is no success is rolled back, then freed; and where the key was not to be
/// freed, somebody else's answer is the one that counts.
#[tokio::test(start_paused = true)]
async fn a_failure_is_undone() {
    let failing = async |script| {
        let sent = send_with(script, Some("k"), || StatusCode::BAD_REQUEST).await;
        sent.expect("no panic")
    };
    let (told, asked) = failing(Script::GOOD).await;
    assert_eq!(
        (&*told, &asked[..]),
        ("400", &["claim", "rollback", "free"][..])
    );

    let lookup = |_| Ok(Some(completed(theirs(), fingerprint())));
    let late = Script {
        free: || Ok(false),
        lookup,
        ..Script::GOOD
    };
    assert_eq!(failing(late).await.0, "replay");

    let (told, asked) = failing(Script {
        free: || down(),
        ..Script::GOOD
    })
    .await;
    assert_eq!(told, "400", "the answer is sent all the same");
    assert_eq!(asked, ["claim", "rollback", "free", "free", "free"]);

    let (told, asked) = failing(Script {
        rollback: Rollback::NotOurs,
        ..Script::GOOD
    })
    .await;
    assert_eq!(told, "500 TransactionLost");
    assert_eq!(asked, ["claim", "rollback", "mark"]);

    let (told, asked) = failing(Script {
        rollback: Rollback::Leaked,
        ..Script::GOOD
    })
    .await;
    assert_eq!(told, "400");
    assert_eq!(asked, ["claim", "rollback", "reclaim", "free"]);
}

/// R55: a panic unwinds on, once the key is free or marked.
#[tokio::test(start_paused = true)]
async fn a_panic_is_undone() {
    for script in [
        Script::GOOD,
        Script {
            free: || Ok(false),
            ..Script::GOOD
        },
        Script {
            rollback: Rollback::NotOurs,
            ..Script::GOOD
        },
    ] {
        let panicked = send_with(script, Some("k"), || panic!("of the handler")).await;
        assert!(panicked.is_err_and(|error| error.is_panic()));
    }
}

/// R57: a claim whose answer was lost may have been made, or be made a little later: it is freed twice.
#[tokio::test(start_paused = true)]
async fn a_claim_without_an_answer_is_freed() {
    let (told, asked) = send(Script {
        claim: || down(),
        ..Script::GOOD
    })
    .await;
    assert_eq!(told, "503 StoreUnavailable");
    assert_eq!(asked, ["claim", "free", "free"]);
}

/// R51, R52, R53: who does not get the claim runs nothing, and changes nothing.
#[tokio::test(start_paused = true)]
async fn who_is_turned_away_changes_nothing() {
    let cases: [(Claims, &str); 4] = [
        (
            || {
                Ok(ClaimOutcome::Completed(StoredResponse::kept(
                    CREATED, "", "",
                )))
            },
            "replay",
        ),
        (|| Ok(ClaimOutcome::InProgress), "409 InProgress"),
        (|| Ok(ClaimOutcome::Mismatch), "409 KeyReused"),
        (|| Ok(ClaimOutcome::Tombstone), "410 Gone"),
    ];
    for (claim, expected) in cases {
        let sent = send_with(
            Script {
                claim,
                ..Script::GOOD
            },
            Some("k"),
            || panic!("it runs"),
        );
        let (told, asked) = sent.await.expect("the handler does not run");
        assert_eq!((&*told, &asked[..]), (expected, &["claim"][..]));
    }
}

/// R8: a request without a record is a success only if its transaction was committed.
#[tokio::test(start_paused = true)]
async fn without_a_record_only_a_commit_is_a_success() {
    let cases: [(Commits, &str); 7] = [
        (|| Completion::Committed, "201"),
        (
            || Completion::RolledBack(StoreError::conflict("x")),
            "503 ConflictRetry",
        ),
        (
            || Completion::RolledBack(StoreError::other("x")),
            "500 CommitFailed",
        ),
        (|| Completion::Lost, "500 TransactionLost"),
        (|| Completion::NotOurs, "500 TransactionLost"),
        (
            || Completion::Unknown(StoreError::other("cut")),
            "500 TransactionLost",
        ),
        (|| Completion::Leaked, "500 TransactionLeaked"),
    ];
    for (commit, expected) in cases {
        let sent = send_with(
            Script {
                commit,
                ..Script::GOOD
            },
            None,
            || CREATED,
        )
        .await;
        let (told, asked) = sent.expect("no panic");
        assert_eq!(told, expected);
        assert_eq!(
            asked.contains(&"reclaim"),
            expected == "500 TransactionLeaked"
        );
    }
    let sent = send_with(Script::GOOD, None, || StatusCode::NOT_FOUND).await;
    assert_eq!(
        sent.expect("no panic"),
        ("404".to_owned(), vec!["rollback"])
    );
}

/// R64: a mark that finds nothing to mark has been made before, or the key is somebody else's.
#[tokio::test(start_paused = true)]
async fn a_mark_that_was_made_is_not_lost() {
    let cases: [(Looks, &str); 3] = [
        (
            |mine| Ok(Some(completed(mine, fingerprint()))),
            "500 TransactionLost",
        ),
        (|_| Ok(Some(completed(theirs(), fingerprint()))), "replay"),
        (|_| Ok(None), "409 InProgress"),
    ];
    for (lookup, expected) in cases {
        let script = Script {
            complete: |_| Some(Completion::NotOurs),
            mark: || Ok(false),
            lookup,
            ..Script::GOOD
        };
        assert_eq!(send(script).await.0, expected);
    }
}

/// R7: where the key is not optional, nothing runs without one.
#[tokio::test(start_paused = true)]
async fn a_missing_key_is_refused() {
    let store = Scripted::new(Script::GOOD);
    let layer = IdempotencyLayer::with_store(store.clone()).operation("publish");
    let response = sent(&layer, None, async || panic!("it runs")).await;
    assert_eq!(told(&response), "400 KeyMissing");
    assert!(store.asked().is_empty());
}

/// A service that is never ready.
#[derive(Clone)]
struct Unready;

impl Service<Request<Full<Bytes>>> for Unready {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Pending<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Pending
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        panic!("it is not ready")
    }
}

/// The layer is ready when what it is around is.
#[test]
fn readiness_is_the_inner_services() {
    let layer = IdempotencyLayer::with_store(Scripted::new(Script::GOOD)).operation("publish");
    let mut service = layer.layer(Unready);
    let ready = pin!(service.ready());
    let mut context = Context::from_waker(Waker::noop());
    assert!(ready.poll(&mut context).is_pending());
}
