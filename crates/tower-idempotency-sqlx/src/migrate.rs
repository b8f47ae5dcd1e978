//! Making the table.

use sqlx::Pool;
use tower_idempotency_core::StoreError;

use crate::dialect::Dialect;

/// Makes the tables of the layer, or brings them up to date. To be called at start, by any number of
/// processes.
///
/// Keeps its own list of migrations (`tower_idempotency.migration` on PostgreSQL, elsewhere
/// `tower_idempotency_migration`), apart from the application's `_sqlx_migrations`. The SQL is in
/// the folder `migrations`, to be read, or copied into the application's own. On PostgreSQL the
/// pool's role must be allowed to create the schema `tower_idempotency`.
///
/// # Errors
///
/// When the database refuses, or when the tables were made by other migrations than these.
pub async fn migrate<DB: Dialect>(pool: &Pool<DB>) -> Result<(), StoreError> {
    DB::run_migrations(pool).await.map_err(StoreError::other)
}
