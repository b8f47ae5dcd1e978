//! The table of records within one transaction that writes.

use std::time::Duration;

use redb::{ReadTransaction, ReadableTable, Table, WriteTransaction};
use tower_idempotency::{
    Claim, ClaimToken, Owner, Record, RecordId, ResourceRef, StoreError, StoredResponse,
    TombstoneResource,
};

use crate::database::failed;
use crate::record::{Key, RECORDS, Row, decode, done, holder, key};

/// How long a claim must have been stale to be purged: 30 days.
const PURGE_STALE_AFTER: u64 = 30 * 24 * 3600 * 1000;

pub(crate) struct Records<'txn> {
    table: Table<'txn, Key<'static>, Row<'static>>,
    now: u64,
    changed: bool,
}

impl<'txn> Records<'txn> {
    pub(crate) fn within(
        transaction: &'txn WriteTransaction,
        now: u64,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            table: transaction.open_table(RECORDS).map_err(failed)?,
            now,
            changed: false,
        })
    }

    /// Whether there is anything to commit.
    pub(crate) fn changed(&self) -> bool {
        self.changed
    }

    pub(crate) fn find(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let row = self.table.get(key(id)).map_err(failed)?;
        row.map(|row| decode(row.value(), self.now)).transpose()
    }

    /// The fence: when the record was claimed and goes stale, if it is still in the hands of that
    /// token, and claimed.
    fn held(&self, id: &RecordId, token: &ClaimToken) -> Result<Option<(u64, u64)>, StoreError> {
        let row = self.table.get(key(id)).map_err(failed)?;
        Ok(row.and_then(|row| match row.value() {
            (claimed_at, stale_at, _, Some((holder, _)), None) if holder == *token.as_bytes() => {
                Some((claimed_at, stale_at))
            }
            _ => None,
        }))
    }

    fn put(&mut self, key: Key<'_>, row: Row<'_>) -> Result<(), StoreError> {
        self.table.insert(key, row).map_err(failed)?;
        self.changed = true;
        Ok(())
    }

    /// Claims the record, whatever was there: that is the caller's decision.
    pub(crate) fn claim(&mut self, claim: &Claim) -> Result<(), StoreError> {
        let row = (
            self.now,
            self.after(claim.stale_after),
            "",
            Some(holder(claim)),
            None,
        );
        self.put(key(&claim.id), row)
    }

    pub(crate) fn renew(&mut self, claim: &Claim) -> Result<bool, StoreError> {
        let Some((claimed_at, _)) = self.held(&claim.id, &claim.token)? else {
            return Ok(false);
        };
        let stale_at = self.after(claim.stale_after);
        let row = (claimed_at, stale_at, "", Some(holder(claim)), None);
        self.put(key(&claim.id), row).map(|()| true)
    }

    pub(crate) fn complete(
        &mut self,
        claim: &Claim,
        ttl: Option<Duration>,
        response: &StoredResponse,
    ) -> Result<bool, StoreError> {
        let Some((claimed_at, stale_at)) = self.held(&claim.id, &claim.token)? else {
            return Ok(false);
        };
        let row = (
            claimed_at,
            stale_at,
            response
                .resource_ref
                .as_ref()
                .map_or("", ResourceRef::as_str),
            Some(holder(claim)),
            Some(done(response, ttl.map(|ttl| self.after(ttl)))),
        );
        self.put(key(&claim.id), row).map(|()| true)
    }

    pub(crate) fn remove(&mut self, id: &RecordId, token: &ClaimToken) -> Result<bool, StoreError> {
        let held = self.held(id, token)?.is_some();
        if held {
            self.table.remove(key(id)).map_err(failed)?;
            self.changed = true;
        }
        Ok(held)
    }

    /// Buries what made that resource. Reads all records of that owner's operation: an index would
    /// pay where one owner has very many.
    pub(crate) fn bury(&mut self, resource: &TombstoneResource) -> Result<u64, StoreError> {
        let (owner, operation) = (resource.owner.as_str(), resource.operation.as_str());
        let wanted = resource.resource_ref.as_str();
        let beyond = successor(operation);
        let range = (owner, operation, "")..(owner, beyond.as_str(), "");
        let mut made = Vec::new();
        for entry in self.table.range(range).map_err(failed)? {
            let (key, row) = entry.map_err(failed)?;
            if let (claimed_at, stale_at, found, Some(_), Some(_)) = row.value()
                && found == wanted
            {
                made.push((key.value().2.to_owned(), claimed_at, stale_at));
            }
        }
        for (key, claimed_at, stale_at) in &made {
            let row = (*claimed_at, *stale_at, wanted, None, None);
            self.put((owner, operation, key), row)?;
        }
        Ok(made.len() as u64)
    }

    pub(crate) fn erase(&mut self, owner: &Owner) -> Result<u64, StoreError> {
        let beyond = successor(owner.as_str());
        let range = (owner.as_str(), "", "")..(beyond.as_str(), "", "");
        let mut erased = 0;
        let erase = |_: Key<'_>, _: Row<'_>| {
            erased += 1;
            false
        };
        self.table.retain_in(range, erase).map_err(failed)?;
        self.changed |= erased > 0;
        Ok(erased)
    }

    /// Deletes those of the keys whose record is still over.
    pub(crate) fn purge(&mut self, keys: &[OwnedKey]) -> Result<u64, StoreError> {
        let mut purged = 0;
        for (owner, operation, key) in keys {
            let key = (owner.as_str(), operation.as_str(), key.as_str());
            let row = self.table.get(key).map_err(failed)?;
            if row.is_some_and(|row| is_over(row.value(), self.now)) {
                self.table.remove(key).map_err(failed)?;
                self.changed = true;
                purged += 1;
            }
        }
        Ok(purged)
    }

    fn after(&self, time: Duration) -> u64 {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.now.saturating_add(time)
    }
}

pub(crate) type OwnedKey = (String, String, String);

/// Finds records that the purge may delete, while others write: to be judged again when nobody
/// does.
pub(crate) fn over(
    transaction: &ReadTransaction,
    now: u64,
    limit: usize,
) -> Result<Vec<OwnedKey>, redb::Error> {
    let table = transaction.open_table(RECORDS)?;
    let mut keys = Vec::new();
    for entry in table.iter()? {
        if keys.len() == limit {
            break;
        }
        let (key, row) = entry?;
        if is_over(row.value(), now) {
            let (owner, operation, key) = key.value();
            keys.push((owner.into(), operation.into(), key.into()));
        }
    }
    Ok(keys)
}

fn is_over((_, stale_at, _, holder, done): Row<'_>, now: u64) -> bool {
    match (holder, done) {
        (Some(_), None) => stale_at.saturating_add(PURGE_STALE_AFTER) <= now,
        (Some(_), Some((_, expires_at, _))) => expires_at.is_some_and(|at| at <= now),
        (None, _) => false,
    }
}

/// The least text greater than this one and all that it begins with a NUL: there is none in owners
/// and operations, so that nothing lies between.
fn successor(text: &str) -> String {
    format!("{text}\0")
}
