//! The plumbing that is the same for every driver, but that sqlx's traits do not let be generic.

use std::fmt;
use std::future::Future;

use sqlx::{Database, SqlStr};

use crate::row::Row;

/// A value to bind. `Debug` shows none: there are keys, bodies and tokens among them.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// A part of the identity, a fingerprint.
    Text(&'a str),
    /// A reference.
    MaybeText(Option<&'a str>),
    /// A token.
    Bytes(&'a [u8]),
    /// Headers, a body.
    MaybeBytes(Option<&'a [u8]>),
    /// A status, a duration, a limit.
    Int(i64),
    /// A ttl.
    MaybeInt(Option<i64>),
    /// Whether a result is kept.
    Bool(bool),
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(..)")
    }
}

/// Runs one statement.
pub trait Driver: Database {
    /// Returns how many rows it changed.
    fn execute(
        conn: &mut Self::Connection,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Returns the record it found.
    fn fetch_record(
        conn: &mut Self::Connection,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<Option<Row>, sqlx::Error>> + Send;

    /// Runs statements without values, as they are written.
    fn simple(
        conn: &mut Self::Connection,
        sql: SqlStr,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

macro_rules! impl_driver {
    ($db:ty, $arguments:ty, $row:ty) => {
        impl $crate::driver::Driver for $db {
            async fn execute(
                conn: &mut Self::Connection,
                sql: &'static str,
                values: &[$crate::driver::Value<'_>],
            ) -> Result<u64, sqlx::Error> {
                let done = sqlx::query_with(sql, bind(values)?).execute(conn).await?;
                Ok(done.rows_affected())
            }

            async fn fetch_record(
                conn: &mut Self::Connection,
                sql: &'static str,
                values: &[$crate::driver::Value<'_>],
            ) -> Result<Option<$crate::row::Row>, sqlx::Error> {
                let row = sqlx::query_with(sql, bind(values)?)
                    .fetch_optional(conn)
                    .await?;
                row.as_ref().map(read).transpose()
            }

            async fn simple(
                conn: &mut Self::Connection,
                sql: sqlx::SqlStr,
            ) -> Result<(), sqlx::Error> {
                sqlx::raw_sql(sql).execute(conn).await.map(drop)
            }
        }

        fn bind(values: &[$crate::driver::Value<'_>]) -> Result<$arguments, sqlx::Error> {
            use sqlx::Arguments as _;
            use $crate::driver::Value;

            let mut arguments = <$arguments>::default();
            for value in values {
                match *value {
                    Value::Text(value) => arguments.add(value),
                    Value::MaybeText(value) => arguments.add(value),
                    Value::Bytes(value) => arguments.add(value),
                    Value::MaybeBytes(value) => arguments.add(value),
                    Value::Int(value) => arguments.add(value),
                    Value::MaybeInt(value) => arguments.add(value),
                    Value::Bool(value) => arguments.add(value),
                }
                .map_err(sqlx::Error::Encode)?;
            }
            Ok(arguments)
        }

        fn read(row: &$row) -> Result<$crate::row::Row, sqlx::Error> {
            use sqlx::Row as _;

            Ok($crate::row::Row {
                state: row.try_get(0)?,
                claim_token: row.try_get(1)?,
                claimed_at_ms: row.try_get(2)?,
                stale: row.try_get(3)?,
                fingerprint: row.try_get(4)?,
                status: row.try_get(5)?,
                kept: row.try_get(6)?,
                headers: row.try_get(7)?,
                body: row.try_get(8)?,
                resource_ref: row.try_get(9)?,
                expired: row.try_get(10)?,
            })
        }
    };
}
