//! Keeping a pool free of half-ended transactions.

use sqlx::pool::PoolOptions;

use crate::dialect::Dialect;

/// Keeps connections out of a pool that were given back inside of a transaction.
///
/// In sqlx 0.9.0 a `begin()` that is cancelled, for instance by a time-out around it, gives its
/// connection back like that on PostgreSQL and MySQL (sqlx issues 4385 and 4393), and whatever runs
/// on it next looks done and is not: also a claim. The layer's own transactions are begun so that
/// nothing cancels them; this is for those of the application on the same pool. Costs a round trip
/// for each time that a connection goes back. Sets `after_release`, of which a pool has one.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn connect(url: &str) -> sqlx::Result<sqlx::PgPool> {
/// use sqlx::postgres::PgPoolOptions;
///
/// tower_idempotency_sqlx::harden(PgPoolOptions::new().max_connections(20)).connect(url).await
/// # }
/// ```
#[must_use]
pub fn harden<DB: Dialect>(options: PoolOptions<DB>) -> PoolOptions<DB> {
    options.after_release(|conn, _| Box::pin(DB::is_clean(conn)))
}
