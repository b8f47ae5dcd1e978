//! The request's future is dropped after every possible number of polls.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use end_to_end::{TestDb, World, on_every_database};
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use tower::ServiceExt as _;
use tower_idempotency::{Owner, Tx};

/// Polls a future at most so many times, and then drops it.
struct Polled<F> {
    future: Option<Pin<Box<F>>>,
    left: usize,
}

impl<F: Future> Future for Polled<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.left -= 1;
        let future = self.future.as_mut().expect("polled after its end");
        let polled = future.as_mut().poll(cx).map(Some);
        if polled.is_pending() && self.left == 0 {
            self.future = None;
            return Poll::Ready(None);
        }
        polled
    }
}

/// A body in pieces, each after an await.
fn body() -> Body {
    struct Pieces(u8);
    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
            self.0 += 1;
            match self.0 {
                7.. => Poll::Ready(None),
                odd if odd % 2 == 1 => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                _ => Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(
                    b"piece",
                ))))),
            }
        }
    }
    Body::new(Pieces(0))
}

async fn handler<D: TestDb>(tx: Tx<D>, body: Bytes) -> Result<StatusCode, Response> {
    assert_eq!(&body[..], b"piecepiecepiece");
    tokio::task::yield_now().await;
    let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
    D::insert(&mut conn, "x").await.expect("an insert");
    tokio::task::yield_now().await;
    Ok(StatusCode::CREATED)
}

fn request(key: usize) -> Request<Body> {
    let request = Request::post("/")
        .header("idempotency-key", key)
        .header(header::CONTENT_TYPE, "a/b");
    request.body(body()).expect("a request")
}

on_every_database! {
    /// R56, R58: after each number of polls there is an effect if and only if there is a completed
    /// record, no claim is stuck, no permit is lost and no connection poisoned.
    async fn every_await_may_be_the_last<D>() {
        let world = World::<D>::with_connections(2).await;
        let layer = world.layer().max_in_flight(1);
        let app = Router::new()
            .route("/", post(handler::<D>).layer(layer))
            .layer(Extension(Owner::new("ann").unwrap()));
        let (mut dropped, mut done) = (0, 0);
        for polls in 1.. {
            let future = Some(Box::pin(app.clone().oneshot(request(polls))));
            let answer = timeout(Duration::from_secs(10), Polled { future, left: polls }).await;
            let answer = answer.expect("nothing hangs");
            let key = polls.to_string();
            let over = answer.is_some();
            if let Some(answer) = answer {
                let answer = answer.unwrap();
                assert_eq!(answer.status(), StatusCode::CREATED);
                answer.into_body().collect().await.unwrap();
            }
            // What was begun goes on without its client, and then the one permit is back.
            let next = async {
                loop {
                    let next = app.clone().oneshot(request(100_000 + polls)).await.unwrap();
                    if next.status() != StatusCode::SERVICE_UNAVAILABLE {
                        break next.status();
                    }
                }
            };
            let next = timeout(Duration::from_secs(10), next).await.expect("no permit is lost");
            assert_eq!(next, StatusCode::CREATED, "after {polls} polls");
            assert_eq!(world.records(&key, "claimed").await, 0, "stuck after {polls} polls");
            done += 1 + world.records(&key, "completed").await;
            assert_eq!(world.effects("x").await, done, "after {polls} polls");
            if over {
                break;
            }
            dropped += 1;
        }
        assert!(dropped >= 4, "dropped while reading and while running: {dropped}");
        world.end().await;
    }
}
