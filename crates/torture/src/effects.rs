//! What the servers' handlers write, and what is there in the end.

use std::future::Future;

use sqlx::{AssertSqlSafe, MySql, Pool, Postgres, SqlSafeStr as _, SqlStr, Sqlite};
use tower_idempotency::Dialect;
use uuid::Uuid;

use crate::history::{Effect, RecordRow, Tables};

/// How many rows the second write of a handler is spread over.
const SLOTS: u8 = 64;

/// The tables on every database. A removed effect is kept as a burial, so that nothing that was
/// ever committed can hide.
const TABLES: &str = "
    CREATE TABLE effect (
        id varchar(64) PRIMARY KEY, made_by varchar(64) NOT NULL, body varchar(255) NOT NULL,
        linger_ms bigint NOT NULL
    );
    CREATE TABLE burial (
        no varchar(64) PRIMARY KEY, id varchar(64) NOT NULL, made_by varchar(64) NOT NULL,
        body varchar(255) NOT NULL, buried_by varchar(64) NOT NULL
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
    const MORE_TABLES: Option<&'static str>;
    /// Reads the layer's records.
    const RECORDS: &'static str;
    /// The type of whole numbers in a CAST.
    const WHOLE: &'static str;
    /// Whether parameters have numbers.
    const NUMBERED: bool;

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

/// A statement whose parameters are numbered in their order.
fn written<D: Effects>(sql: &str) -> SqlStr {
    let mut sql = sql.to_owned();
    if !D::NUMBERED {
        for number in 1..=5 {
            sql = sql.replace(&format!("${number}"), "?");
        }
    }
    AssertSqlSafe(sql).into_sql_str()
}

macro_rules! impl_effects {
    ($db:ty, $whole:literal, $numbered:literal, $more:expr, $records:literal) => {
        impl Effects for $db {
            const MORE_TABLES: Option<&'static str> = $more;
            const RECORDS: &'static str = $records;
            const WHOLE: &'static str = $whole;
            const NUMBERED: bool = $numbered;

            async fn make_tables(pool: &Pool<Self>) -> sqlx::Result<()> {
                for sql in [Some(TABLES), Self::MORE_TABLES].into_iter().flatten() {
                    sqlx::raw_sql(sql).execute(pool).await?;
                }
                for slot in 0..SLOTS {
                    let sql = "INSERT INTO tally (slot, effects) VALUES ($1, 0)";
                    let query = sqlx::query(written::<Self>(sql)).bind(i64::from(slot));
                    query.execute(pool).await?;
                }
                Ok(())
            }

            async fn insert(conn: &mut Self::Connection, effect: &NewEffect) -> sqlx::Result<()> {
                let sql =
                    "INSERT INTO effect (id, made_by, body, linger_ms) VALUES ($1, $2, $3, $4)";
                let query = sqlx::query(written::<Self>(sql))
                    .bind(&effect.id)
                    .bind(&effect.key)
                    .bind(&effect.body)
                    .bind(effect.linger_ms);
                query.persistent(false).execute(conn).await.map(drop)
            }

            async fn count(conn: &mut Self::Connection, key: &str) -> sqlx::Result<()> {
                let sql = "UPDATE tally SET effects = effects + 1 WHERE slot = $1";
                let query = sqlx::query(written::<Self>(sql)).bind(slot(key));
                query.persistent(false).execute(conn).await.map(drop)
            }

            async fn bury(conn: &mut Self::Connection, id: &str, by: &str) -> sqlx::Result<bool> {
                let sql = "INSERT INTO burial (no, id, made_by, body, buried_by) \
                     SELECT $1, id, made_by, body, $2 FROM effect WHERE id = $3";
                let query = sqlx::query(written::<Self>(sql))
                    .bind(Uuid::new_v4().to_string())
                    .bind(by)
                    .bind(id);
                query.persistent(false).execute(&mut *conn).await?;
                let sql = "DELETE FROM effect WHERE id = $1";
                let query = sqlx::query(written::<Self>(sql)).bind(id);
                let deleted = query.persistent(false).execute(conn).await?;
                Ok(deleted.rows_affected() == 1)
            }

            async fn read(pool: &Pool<Self>) -> sqlx::Result<Tables> {
                let sql = "SELECT id, made_by, body, NULL AS buried_by FROM effect \
                     UNION ALL SELECT id, made_by, body, buried_by FROM burial";
                let effects: Vec<Effect> = sqlx::query_as(sql).fetch_all(pool).await?;
                let records: Vec<RecordRow> = sqlx::query_as(Self::RECORDS).fetch_all(pool).await?;
                let sql = format!("SELECT CAST(sum(effects) AS {}) FROM tally", Self::WHOLE);
                let tally: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
                    .fetch_one(pool)
                    .await?;
                Ok(Tables {
                    effects,
                    records,
                    tally,
                    idle: 0,
                })
            }

            async fn claimed(pool: &Pool<Self>) -> sqlx::Result<i64> {
                let sql = format!(
                    "SELECT count(*) FROM ({}) AS record WHERE state = 'claimed'",
                    Self::RECORDS
                );
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(pool).await
            }
        }
    };
}

impl_effects!(
    Postgres,
    "bigint",
    true,
    Some(LINGER),
    "SELECT key AS made_by, state, resource_ref FROM tower_idempotency.record"
);
impl_effects!(
    Sqlite,
    "bigint",
    true,
    None,
    "SELECT key AS made_by, state, resource_ref FROM tower_idempotency_record"
);
// Bytes there: a collation would take some for equal.
impl_effects!(
    MySql,
    "signed",
    false,
    None,
    "SELECT CAST(`key` AS CHAR) AS made_by, CAST(state AS CHAR) AS state, \
         CAST(resource_ref AS CHAR) AS resource_ref FROM tower_idempotency_record"
);
