//! How long a step may take.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::task::coop::{Unconstrained, unconstrained};
use tokio::time::{Sleep, sleep};

/// The step took too long, and was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

pin_project! {
    /// A step with a time-out. Most steps that ask no database are over when they are first polled:
    /// the clock is not read for them. No `async fn`: that would have room for the step twice.
    pub(crate) struct Within<F> {
        #[pin]
        step: F,
        patience: Duration,
        // The step may have used up what a task has to do until it yields; the clock is looked at
        // all the same.
        #[pin]
        end: Option<Unconstrained<Sleep>>,
    }
}

/// Bounds a step, from its first poll on.
pub(crate) fn within<F: Future>(patience: Duration, step: F) -> Within<F> {
    Within {
        step,
        patience,
        end: None,
    }
}

impl<F: Future> Future for Within<F> {
    type Output = Result<F::Output, TooLong>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(done) = this.step.poll(cx) {
            return Poll::Ready(Ok(done));
        }
        if this.end.is_none() {
            this.end.set(Some(unconstrained(sleep(*this.patience))));
        }
        match this.end.as_pin_mut() {
            Some(end) => end.poll(cx).map(|()| Err(TooLong)),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::task::coop::consume_budget;
    use tokio::time::Instant;

    use super::{TooLong, within};

    const PATIENCE: Duration = Duration::from_secs(1);

    /// A step that is ready is never late; one that waits is, at its time and not before.
    #[tokio::test(start_paused = true)]
    async fn a_step_has_its_time() {
        assert_eq!(within(Duration::ZERO, ready(1)).await, Ok(1));
        let begun = Instant::now();
        assert_eq!(within(PATIENCE, pending::<()>()).await, Err(TooLong));
        assert_eq!(begun.elapsed().as_secs(), 1);
        let slow = tokio::time::sleep(PATIENCE / 2);
        assert_eq!(within(PATIENCE, slow).await, Ok(()));
    }

    /// A step that never waits for anything is ended all the same.
    #[tokio::test]
    async fn a_busy_step_has_an_end() {
        let busy = async {
            loop {
                consume_budget().await;
            }
        };
        let late: Result<(), _> = within(Duration::from_millis(10), busy).await;
        assert_eq!(late, Err(TooLong));
    }
}
