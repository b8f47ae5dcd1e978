//! The contract of all stores.

use std::time::Duration;

use custom_store::{RedbStore, RedbTx, Writer};
use redb::{ReadableTable, TableDefinition, TableError};
use tempfile::TempDir;
use tower_idempotency::TxError;
use tower_idempotency_testsuite::{Fixture, contract};

contract!(Redb::fresh());

const EFFECTS: TableDefinition<'_, &str, u64> = TableDefinition::new("effect");

struct Redb {
    store: RedbStore,
    // Dropped after the store.
    _folder: TempDir,
}

impl Redb {
    fn fresh() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = RedbStore::open(folder.path().join("contract.db"));
        Self {
            store: store.expect("a database"),
            _folder: folder,
        }
    }
}

impl Fixture for Redb {
    type Store = RedbStore;
    type Guard = Writer;

    fn store(&self) -> &RedbStore {
        &self.store
    }

    // redb locks its file: there can be no second process, only a second handle.
    async fn second(&self) -> RedbStore {
        self.store.clone()
    }

    async fn write(&self, tx: &RedbTx, what: &str) -> Result<(), TxError> {
        let writer = tx.acquire().await?;
        let mut effects = writer.open_table(EFFECTS).expect("a table");
        let count = effects.get(what).expect("a read").map_or(0, |n| n.value());
        effects.insert(what, count + 1).expect("a write");
        Ok(())
    }

    async fn effects(&self, what: &str) -> u64 {
        let what = what.to_owned();
        let reading = self.store.read(move |transaction| {
            let effects = match transaction.open_table(EFFECTS) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(0),
                effects => effects?,
            };
            let count = effects.get(what.as_str())?;
            Ok(count.map_or(0, |n| n.value()))
        });
        reading.await.expect("a read")
    }

    async fn age(&self, by: Duration) {
        self.store.advance(by);
    }

    async fn hold(&self, tx: &RedbTx) -> Result<Writer, TxError> {
        tx.acquire().await
    }

    async fn end_by_hand(&self, tx: &RedbTx) -> Result<(), TxError> {
        tx.acquire().await?.commit_by_hand().expect("a commit");
        Ok(())
    }
}
