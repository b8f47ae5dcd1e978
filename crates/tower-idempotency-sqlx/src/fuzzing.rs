//! What the fuzz targets reach of this crate. There only where they are built.

use tower_idempotency_core::{Record, StoreError};

use crate::row::Row;

/// The columns of a row, in their order.
pub type Columns = (
    String,
    Option<Vec<u8>>,
    i64,
    bool,
    Option<String>,
    Option<i64>,
    Option<bool>,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Option<String>,
    bool,
);

/// Reads a row.
///
/// # Errors
///
/// Where it breaks the constraints of its table.
pub fn record(columns: Columns) -> Result<Record, StoreError> {
    let (state, claim_token, claimed_at_ms, stale, fingerprint, status, kept, ..) = columns;
    let (.., headers, body, resource_ref, expired) = columns;
    Row {
        state,
        claim_token,
        claimed_at_ms,
        stale,
        fingerprint,
        status,
        kept,
        headers,
        body,
        resource_ref,
        expired,
    }
    .into_record()
}
