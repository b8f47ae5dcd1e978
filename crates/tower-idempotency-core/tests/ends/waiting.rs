//! Arrivals that wait for another's result: until when, and how often they look.

use std::time::Duration;

use http::StatusCode;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower_idempotency_core::{ClaimOutcome, IdempotencyLayer, MemoryStore, Store};

use crate::store::{Script, Scripted};
use crate::{sent, told};

const SECOND: Duration = Duration::from_secs(1);

/// A request whose handler takes so long; what it is told, and when.
fn arrive<S: Store>(
    layer: &IdempotencyLayer<S>,
    key: &'static str,
    takes: Duration,
) -> JoinHandle<(String, Duration)> {
    let layer = layer.clone();
    tokio::spawn(async move {
        let begun = Instant::now();
        let handler = move || async move {
            sleep(takes).await;
            StatusCode::CREATED
        };
        let response = sent(&layer, Some(key), handler).await;
        (told(&response), begun.elapsed())
    })
}

fn layer(patience: Duration) -> IdempotencyLayer<MemoryStore> {
    IdempotencyLayer::with_store(MemoryStore::new())
        .operation("publish")
        .wait_for_in_progress(patience)
}

/// About that time: timers are as fine as milliseconds.
fn assert_about(took: Duration, expected: Duration) {
    let late = took.checked_sub(expected).expect("not before its time");
    assert!(
        late < Duration::from_millis(5),
        "{took:?}, not {expected:?}"
    );
}

/// R65: who waits is woken by the completion; it does not have to look.
#[tokio::test(start_paused = true)]
async fn a_result_that_is_waited_for_is_sent_at_once() {
    let layer = layer(60 * SECOND);
    let first = arrive(&layer, "k", 10 * SECOND);
    sleep(SECOND / 10).await;
    let second = arrive(&layer, "k", SECOND);
    assert_eq!(first.await.unwrap().0, "201");
    let (told, took) = second.await.unwrap();
    assert_eq!(told, "replay");
    assert_about(took, 10 * SECOND - SECOND / 10);
}

/// R65: patience has an end.
#[tokio::test(start_paused = true)]
async fn who_waits_too_long_is_turned_away() {
    let layer = layer(3 * SECOND);
    let first = arrive(&layer, "k", 10 * SECOND);
    sleep(SECOND / 10).await;
    let (told, took) = arrive(&layer, "k", SECOND).await.unwrap();
    assert_eq!(told, "409 InProgress");
    assert_about(took, 3 * SECOND);
    assert_eq!(first.await.unwrap().0, "201");
}

/// R65: another process's result is looked for, less and less often: after 50 ms, then twice as long each
/// time, up to a second.
#[tokio::test(start_paused = true)]
async fn who_waits_looks_now_and_then() {
    let store = Scripted::new(Script {
        claim: || Ok(ClaimOutcome::InProgress),
        ..Script::GOOD
    });
    let layer = IdempotencyLayer::with_store(store.clone())
        .operation("publish")
        .wait_for_in_progress(10 * SECOND);
    let (told, took) = arrive(&layer, "k", SECOND).await.unwrap();
    assert_eq!(told, "409 InProgress");
    assert_about(took, 10 * SECOND);
    // At 0, 0.05, 0.15, 0.35, 0.75, 1.55, then each second to 9.55, and at the end.
    assert_eq!(store.asked().len(), 6 + 8 + 1);
}

/// A lack of permits turns away who has not begun to wait, and nobody who has.
#[tokio::test(start_paused = true)]
async fn a_lack_of_permits_ends_no_wait() {
    let layer = layer(60 * SECOND).max_in_flight(2);
    let first = arrive(&layer, "k", 10 * SECOND);
    sleep(SECOND).await;
    let waiting = arrive(&layer, "k", SECOND);
    sleep(SECOND).await;
    let _other = arrive(&layer, "another", 60 * SECOND);
    sleep(SECOND).await;
    let (told, took) = arrive(&layer, "k", SECOND).await.unwrap();
    assert_eq!(told, "503 Busy");
    assert_about(took, Duration::ZERO);
    assert_eq!(first.await.unwrap().0, "201");
    assert_eq!(waiting.await.unwrap().0, "replay");
}

/// A drain ends all waiting, also where there is no permit.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_waiting() {
    let layer = layer(60 * SECOND).max_in_flight(1);
    let first = arrive(&layer, "k", 30 * SECOND);
    sleep(SECOND).await;
    assert_eq!(arrive(&layer, "k", SECOND).await.unwrap().0, "503 Busy");

    let layer = self::layer(60 * SECOND);
    let waited_for = arrive(&layer, "k", 30 * SECOND);
    sleep(SECOND).await;
    let waiting = arrive(&layer, "k", SECOND);
    sleep(SECOND).await;
    let (left, answer) = tokio::join!(layer.drain(60 * SECOND), waiting);
    let (told, took) = answer.unwrap();
    assert_eq!((left, &*told), (0, "503 Busy"));
    assert!(took < 3 * SECOND, "{took:?}");
    assert_eq!(waited_for.await.unwrap().0, "201");
    assert_eq!(first.await.unwrap().0, "201");
}
