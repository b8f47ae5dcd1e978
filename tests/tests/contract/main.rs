//! The contract of a store, on every database.

mod state_machine;

use std::time::Duration;

use end_to_end::{TestDb, World};
use tower_idempotency::{SqlxStore, Tx, TxConnection, TxError};
use tower_idempotency_testsuite::{Fixture, contract};

struct Sqlx<D: TestDb> {
    world: World<D>,
    store: SqlxStore<D>,
}

impl<D: TestDb> Sqlx<D> {
    async fn fresh() -> Self {
        Self::with(|store| store).await
    }

    async fn with(set: impl Fn(SqlxStore<D>) -> SqlxStore<D>) -> Self {
        let world = World::<D>::new().await;
        Self {
            store: set(SqlxStore::new(world.pool.clone())),
            world,
        }
    }
}

impl Sqlx<sqlx::Postgres> {
    async fn unprepared() -> Self {
        let Self { world, store } = Self::fresh().await;
        let store = store.unprepared();
        Self { world, store }
    }
}

impl<D: TestDb> Fixture for Sqlx<D> {
    type Store = SqlxStore<D>;
    type Guard = TxConnection<D>;

    fn store(&self) -> &SqlxStore<D> {
        &self.store
    }

    async fn second(&self) -> SqlxStore<D> {
        SqlxStore::new(D::connect(&self.world.database, 4).await)
    }

    async fn write(&self, tx: &Tx<D>, what: &str) -> Result<(), TxError> {
        let mut conn = tx.acquire().await?;
        D::insert(&mut conn, what).await.expect("an insert");
        Ok(())
    }

    async fn effects(&self, what: &str) -> u64 {
        u64::try_from(self.world.effects(what).await).expect("a count")
    }

    async fn age(&self, by: Duration) {
        self.world.age(by).await;
    }

    async fn hold(&self, tx: &Tx<D>) -> Result<TxConnection<D>, TxError> {
        tx.acquire().await
    }

    async fn end_by_hand(&self, tx: &Tx<D>) -> Result<(), TxError> {
        let mut conn = tx.acquire().await?;
        D::run(&mut conn, "COMMIT").await.expect("a commit");
        Ok(())
    }

    async fn end(self) {
        self.world.end().await;
    }
}

mod sqlite {
    use super::{Sqlx, contract};

    contract!(Sqlx::<sqlx::Sqlite>::fresh().await);
}

mod mysql {
    use super::{Sqlx, contract};

    contract!(Sqlx::<sqlx::MySql>::fresh().await);
}

mod postgres {
    use super::{Sqlx, contract};

    contract!(Sqlx::<sqlx::Postgres>::fresh().await);
}

mod postgres_unprepared {
    use super::{Sqlx, contract};

    contract!(Sqlx::<sqlx::Postgres>::unprepared().await);
}

mod postgres_relaxed {
    use super::{Sqlx, contract};

    contract!(Sqlx::<sqlx::Postgres>::with(tower_idempotency::SqlxStore::relaxed_claims).await);
}
