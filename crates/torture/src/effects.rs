//! What the servers' handlers write, and what is there in the end.

use std::future::Future;

use sqlx::{AssertSqlSafe, Pool, Postgres, Sqlite};
use tower_idempotency::Dialect;

use crate::history::{Effect, RecordRow, Tables};

/// How many rows the second write of a handler is spread over.
const SLOTS: u8 = 64;

/// The tables on every database. A removed effect is kept as a burial, so that nothing that was
/// ever committed can hide.
const TABLES: &str = "
    CREATE TABLE effect (
        id text PRIMARY KEY, key text NOT NULL, body text NOT NULL, linger_ms bigint NOT NULL
    );
    CREATE TABLE burial (
        id text NOT NULL, key text NOT NULL, body text NOT NULL, buried_by text NOT NULL
    );
    CREATE TABLE tally (slot bigint PRIMARY KEY, effects bigint NOT NULL);
";

/// Lets the COMMIT of some effects take time, so that it can be hit.
const LINGER: &str = "
    CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.linger_ms > 0 THEN PERFORM pg_sleep(NEW.linger_ms / 1000.0); END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER effect_lingers AFTER INSERT ON effect
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linger();
";

/// An effect as the handler writes it.
pub(crate) struct NewEffect {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) body: String,
    pub(crate) linger_ms: i64,
}

/// The statements. Those of the handlers are prepared without a name, which is right in a transaction
/// behind any pooler. The SQL is the same everywhere; only sqlx's types differ.
pub(crate) trait Effects: Dialect {
    /// What only this database has.
    const MORE_TABLES: &'static str;
    /// Where the layer keeps its records.
    const RECORDS: &'static str;

    fn make_tables(pool: &Pool<Self>) -> impl Future<Output = sqlx::Result<()>> + Send;

    fn insert(
        conn: &mut Self::Connection,
        effect: &NewEffect,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// The handler's second write: on a row that others write, too.
    fn count(
        conn: &mut Self::Connection,
        key: &str,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Says whether there was one to bury.
    fn bury(
        conn: &mut Self::Connection,
        id: &str,
        buried_by: &str,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    fn read(pool: &Pool<Self>) -> impl Future<Output = sqlx::Result<Tables>> + Send;

    fn claimed(pool: &Pool<Self>) -> impl Future<Output = sqlx::Result<i64>> + Send;
}

fn slot(key: &str) -> i64 {
    let sum = key
        .bytes()
        .fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    (sum % SLOTS).into()
}

macro_rules! impl_effects {
    ($db:ty, $records:literal, $more:expr) => {
        impl Effects for $db {
            const MORE_TABLES: &'static str = $more;
            const RECORDS: &'static str = $records;

            async fn make_tables(pool: &Pool<Self>) -> sqlx::Result<()> {
                for sql in [TABLES, Self::MORE_TABLES] {
                    sqlx::raw_sql(sql).execute(pool).await?;
                }
                for slot in 0..SLOTS {
                    sqlx::query("INSERT INTO tally (slot, effects) VALUES ($1, 0)")
                        .bind(i64::from(slot))
                        .execute(pool)
                        .await?;
                }
                Ok(())
            }

            async fn insert(conn: &mut Self::Connection, effect: &NewEffect) -> sqlx::Result<()> {
                sqlx::query(
                    "INSERT INTO effect (id, key, body, linger_ms) VALUES ($1, $2, $3, $4)",
                )
                .bind(&effect.id)
                .bind(&effect.key)
                .bind(&effect.body)
                .bind(effect.linger_ms)
                .persistent(false)
                .execute(conn)
                .await?;
                Ok(())
            }

            async fn count(conn: &mut Self::Connection, key: &str) -> sqlx::Result<()> {
                sqlx::query("UPDATE tally SET effects = effects + 1 WHERE slot = $1")
                    .bind(slot(key))
                    .persistent(false)
                    .execute(conn)
                    .await?;
                Ok(())
            }

            async fn bury(conn: &mut Self::Connection, id: &str, by: &str) -> sqlx::Result<bool> {
                let sql = "INSERT INTO burial (id, key, body, buried_by) \
                     SELECT id, key, body, $2 FROM effect WHERE id = $1";
                sqlx::query(sql)
                    .bind(id)
                    .bind(by)
                    .persistent(false)
                    .execute(&mut *conn)
                    .await?;
                let deleted = sqlx::query("DELETE FROM effect WHERE id = $1").bind(id);
                Ok(deleted
                    .persistent(false)
                    .execute(conn)
                    .await?
                    .rows_affected()
                    == 1)
            }

            async fn read(pool: &Pool<Self>) -> sqlx::Result<Tables> {
                let sql = "SELECT id, key, body, NULL AS buried_by FROM effect \
                     UNION ALL SELECT id, key, body, buried_by FROM burial";
                let effects: Vec<Effect> = sqlx::query_as(sql).fetch_all(pool).await?;
                let sql = format!("SELECT key, state, resource_ref FROM {}", Self::RECORDS);
                let records: Vec<RecordRow> =
                    sqlx::query_as(AssertSqlSafe(sql)).fetch_all(pool).await?;
                let sql = "SELECT CAST(sum(effects) AS bigint) FROM tally";
                let tally: i64 = sqlx::query_scalar(sql).fetch_one(pool).await?;
                Ok(Tables {
                    effects,
                    records,
                    tally,
                    idle: 0,
                })
            }

            async fn claimed(pool: &Pool<Self>) -> sqlx::Result<i64> {
                let sql = format!(
                    "SELECT count(*) FROM {} WHERE state = 'claimed'",
                    Self::RECORDS
                );
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(pool).await
            }
        }
    };
}

impl_effects!(Postgres, "tower_idempotency.record", LINGER);
impl_effects!(Sqlite, "tower_idempotency_record", "");
