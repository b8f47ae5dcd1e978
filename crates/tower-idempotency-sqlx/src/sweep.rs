//! Purging in the background.

use std::convert::Infallible;
use std::time::Duration;

use tower_idempotency_core::Store;

/// How many records one statement deletes.
const BATCH: u32 = 1_000;

/// Purges the store every `interval`, in batches of 1,000, for ever.
///
/// For records with a ttl, and claims that have been stale for 30 days; the latter are found by
/// reading the table, so an interval of hours is right for a large one. Expiry itself is judged when
/// a key is claimed, and never depends on the purge. Spawn it, and abort the task at shutdown:
///
/// ```no_run
/// # use std::time::Duration;
/// # use tower_idempotency_core::MemoryStore;
/// # let store = MemoryStore::new();
/// let sweeper = tokio::spawn(tower_idempotency_sqlx::sweep(store, Duration::from_secs(3600)));
/// ```
///
/// # Cancellation
///
/// Safe at any await: each statement stands by itself.
pub async fn sweep<S: Store>(store: S, interval: Duration) -> Infallible {
    loop {
        let mut purged = 0;
        loop {
            match store.purge(BATCH).await {
                Ok(batch) => {
                    purged += batch;
                    if batch < u64::from(BATCH) {
                        break;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "purge failed; trying again at the next interval");
                    break;
                }
            }
        }
        tracing::debug!(purged, "swept");
        tokio::time::sleep(interval).await;
    }
}
