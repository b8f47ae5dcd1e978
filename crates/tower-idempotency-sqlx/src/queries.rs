//! The statements with their parameters, once for all databases.

use std::time::Duration;

use tower_idempotency_core::{
    Claim, ClaimToken, Owner, RecordId, StoredResponse, TombstoneResource,
};

use crate::dialect::Dialect;
use crate::driver::{Sending, Value};
use crate::row::Row;

type Result<T> = std::result::Result<T, sqlx::Error>;

fn text(part: &str) -> Value<'_> {
    Value::Text(part)
}

fn identity(id: &RecordId) -> [Value<'_>; 3] {
    [
        text(id.owner.as_str()),
        text(id.operation.as_str()),
        text(id.key.as_str()),
    ]
}

/// Whole milliseconds; what does not fit is for ever.
pub(crate) fn millis(duration: Duration) -> i64 {
    // A century: far beyond it, the databases' own clocks overflow.
    const LONGEST: i64 = 100 * 366 * 24 * 3600 * 1000;
    i64::try_from(duration.as_millis())
        .unwrap_or(LONGEST)
        .min(LONGEST)
}

/// The statement's parameters: the identity, the token, and more.
fn held<'a>(id: &'a RecordId, token: &'a ClaimToken, more: &[Value<'a>]) -> Vec<Value<'a>> {
    let mut values = identity(id).to_vec();
    values.push(Value::Bytes(token.as_bytes()));
    values.extend_from_slice(more);
    values
}

pub(crate) async fn lookup<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    id: &RecordId,
) -> Result<Option<Row>> {
    DB::lookup(conn, sending, &identity(id)).await
}

pub(crate) async fn claim<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    claim: &Claim,
    relaxed: bool,
) -> Result<Option<Row>> {
    let more = [
        text(claim.fingerprint.as_str()),
        Value::Int(millis(claim.stale_after)),
    ];
    let values = held(&claim.id, &claim.token, &more);
    match DB::JOINING.filter(|_| relaxed) {
        Some(joining) => DB::fetch_record(conn, sending, joining.relaxed, &values).await,
        None => DB::claim(conn, sending, &values).await,
    }
}

pub(crate) async fn replace<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    claim: &Claim,
    seen: &ClaimToken,
) -> Result<bool> {
    let more = [
        text(claim.fingerprint.as_str()),
        Value::Int(millis(claim.stale_after)),
        Value::Bytes(seen.as_bytes()),
    ];
    let values = held(&claim.id, &claim.token, &more);
    Ok(DB::execute(conn, sending, DB::SQL.replace, &values).await? == 1)
}

fn completion<'a>(claim: &'a Claim, response: &'a StoredResponse) -> Vec<Value<'a>> {
    let content = response.content.as_ref();
    let more = [
        Value::Int(response.status.as_u16().into()),
        Value::Bool(content.is_some()),
        Value::MaybeBytes(content.map(|content| &content.headers[..])),
        Value::MaybeBytes(content.map(|content| &content.body[..])),
        Value::MaybeText(response.resource_ref.as_ref().map(|made| made.as_str())),
        Value::MaybeInt(claim.ttl.map(millis)),
    ];
    held(&claim.id, &claim.token, &more)
}

/// Within the handler's transaction.
pub(crate) async fn complete<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    claim: &Claim,
    response: &StoredResponse,
) -> Result<bool> {
    let values = completion(claim, response);
    Ok(DB::execute(conn, sending, DB::SQL.complete, &values).await? == 1)
}

pub(crate) async fn complete_alone<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    claim: &Claim,
    response: &StoredResponse,
) -> Result<bool> {
    let values = completion(claim, response);
    Ok(DB::execute(conn, sending, DB::SQL.complete_alone, &values).await? == 1)
}

pub(crate) async fn free<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    id: &RecordId,
    token: &ClaimToken,
) -> Result<bool> {
    Ok(DB::execute(conn, sending, DB::SQL.free, &held(id, token, &[])).await? == 1)
}

pub(crate) async fn renew<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    claim: &Claim,
) -> Result<bool> {
    let more = [Value::Int(millis(claim.stale_after))];
    let values = held(&claim.id, &claim.token, &more);
    Ok(DB::execute(conn, sending, DB::SQL.renew, &values).await? == 1)
}

pub(crate) async fn mark_unknown<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    claim: &Claim,
) -> Result<bool> {
    let more = [Value::Int(
        StoredResponse::outcome_unknown().status.as_u16().into(),
    )];
    let values = held(&claim.id, &claim.token, &more);
    Ok(DB::execute(conn, sending, DB::SQL.mark_unknown, &values).await? == 1)
}

pub(crate) async fn tombstone<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    resource: &TombstoneResource,
) -> Result<u64> {
    let values = [
        text(resource.owner.as_str()),
        text(resource.operation.as_str()),
        text(resource.resource_ref.as_str()),
    ];
    DB::execute(conn, sending, DB::SQL.tombstone, &values).await
}

pub(crate) async fn erase_owner<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    owner: &Owner,
) -> Result<u64> {
    DB::execute(conn, sending, DB::SQL.erase_owner, &[text(owner.as_str())]).await
}

/// Claims that have been stale for so long are nobody's: no handler runs for a month.
const STALE_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

pub(crate) async fn purge<DB: Dialect>(
    conn: &mut DB::Connection,
    sending: Sending,
    limit: u32,
) -> Result<u64> {
    let expired = DB::execute(
        conn,
        sending,
        DB::SQL.purge_expired,
        &[Value::Int(limit.into())],
    )
    .await?;
    let left = i64::from(limit).saturating_sub(i64::try_from(expired).unwrap_or(i64::MAX));
    if left <= 0 {
        return Ok(expired);
    }
    let values = [Value::Int(left), Value::Int(millis(STALE_FOR))];
    Ok(expired + DB::execute(conn, sending, DB::SQL.purge_stale, &values).await?)
}
