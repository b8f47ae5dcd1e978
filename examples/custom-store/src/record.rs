//! What a record is in the database.

use std::time::{Duration, UNIX_EPOCH};

use axum::http::StatusCode;
use redb::TableDefinition;
use tower_idempotency::{
    Claim, ClaimToken, Fingerprint, Record, RecordId, RecordState, ResourceRef, StoreError,
    StoredContent, StoredResponse,
};

/// The database knows the types of its tables: one whose rows are of another kind is not opened.
pub(crate) const RECORDS: TableDefinition<'_, Key<'static>, Row<'static>> =
    TableDefinition::new("idempotency_record");

/// Owner, operation and key, compared one after the other, byte for byte.
pub(crate) type Key<'a> = (&'a str, &'a str, &'a str);

/// Claimed at, stale at, resource reference (empty: none), claim, result. A tombstone has neither
/// claim nor result, a completed record both. Times are milliseconds since 1970. When it was
/// completed is left out, since nothing asks for it.
pub(crate) type Row<'a> = (u64, u64, &'a str, Option<Holder<'a>>, Option<Done<'a>>);

/// Token and fingerprint.
pub(crate) type Holder<'a> = ([u8; 16], &'a str);

/// Status, expiry, and header block and body where they were kept.
pub(crate) type Done<'a> = (u16, Option<u64>, Option<(&'a [u8], &'a [u8])>);

pub(crate) fn key(id: &RecordId) -> Key<'_> {
    (id.owner.as_str(), id.operation.as_str(), id.key.as_str())
}

pub(crate) fn holder(claim: &Claim) -> Holder<'_> {
    (*claim.token.as_bytes(), claim.fingerprint.as_str())
}

pub(crate) fn done(response: &StoredResponse, expires_at: Option<u64>) -> Done<'_> {
    let content = response.content.as_ref();
    let content = content.map(|StoredContent { headers, body }| (&headers[..], &body[..]));
    (response.status.as_u16(), expires_at, content)
}

/// Reads a record at that time.
pub(crate) fn decode(row: Row<'_>, now: u64) -> Result<Record, StoreError> {
    let (claimed_at, stale_at, resource_ref, holder, done) = row;
    let resource_ref = match resource_ref {
        "" => None,
        text => Some(ResourceRef::try_new(text).map_err(StoreError::encoding)?),
    };
    let holder = holder.map(|(token, fingerprint)| {
        let fingerprint = Fingerprint::from_stored(fingerprint);
        (ClaimToken::from_bytes(token), fingerprint)
    });
    let state = match (holder, done) {
        (None, None) => RecordState::Tombstone,
        (Some((token, fingerprint)), None) => RecordState::Claimed {
            token,
            fingerprint,
            stale: stale_at <= now,
        },
        (Some((token, fingerprint)), Some((status, expires_at, content))) => {
            let status = StatusCode::from_u16(status).map_err(StoreError::encoding)?;
            let response = match content {
                Some((headers, body)) => {
                    StoredResponse::kept(status, headers.to_vec(), body.to_vec())
                }
                None => StoredResponse::not_kept(status),
            };
            RecordState::Completed {
                token,
                fingerprint,
                response: response.with_resource_ref(resource_ref.clone()),
                expired: expires_at.is_some_and(|at| at <= now),
            }
        }
        (None, Some(_)) => return Err(StoreError::encoding("a result that nobody claimed")),
    };
    let claimed_at = UNIX_EPOCH.checked_add(Duration::from_millis(claimed_at));
    Ok(Record {
        state,
        claimed_at: claimed_at.ok_or_else(|| StoreError::encoding("a time out of bounds"))?,
        resource_ref,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cannot have been written is refused, not guessed at.
    #[test]
    fn nonsense_is_refused() {
        let holder = ([1; 16], "hs1:00");
        let long = "x".repeat(ResourceRef::MAX_LEN + 1);
        let rows: [Row<'_>; 3] = [
            (0, 0, "", None, Some((201, None, None))),
            (0, 0, "", Some(holder), Some((99, None, None))),
            (0, 0, &long, Some(holder), None),
        ];
        for row in rows {
            let decoded = decode(row, 0);
            assert!(matches!(decoded, Err(error) if error.is_encoding()));
        }
    }
}
