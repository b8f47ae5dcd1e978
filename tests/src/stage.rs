//! Where a handler waits until its test lets it go on.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// A place in a handler, at which a test does something to what is around it.
#[derive(Debug)]
pub struct Stage {
    reached: Semaphore,
    go_on: Semaphore,
}

impl Stage {
    /// A place that nobody has reached.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            reached: Semaphore::new(0),
            go_on: Semaphore::new(0),
        })
    }

    /// In the handler: waits until the test says [`go_on`](Self::go_on), once for each.
    pub async fn pause(&self) {
        self.reached.add_permits(1);
        take(&self.go_on).await;
    }

    /// In the test: waits until a handler has come here, once for each.
    pub async fn reached(&self) {
        take(&self.reached).await;
    }

    /// In the test: lets one handler go on, also one that is yet to come.
    pub fn go_on(&self) {
        self.go_on.add_permits(1);
    }
}

async fn take(semaphore: &Semaphore) {
    if let Ok(permit) = semaphore.acquire().await {
        permit.forget();
    }
}
