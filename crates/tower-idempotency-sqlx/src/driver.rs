//! The plumbing that is the same for every driver, but that sqlx's traits do not let be generic.

use std::borrow::Cow;
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

/// A statement as it is written, which says where its parameters go.
pub trait Written: Copy + fmt::Debug + Send + Sync + 'static {
    /// The text.
    fn sql(self) -> &'static str;

    /// The parameters in the order of the placeholders, where those are not numbered.
    fn arrange<'v, 'a>(self, values: &'v [Value<'a>]) -> Cow<'v, [Value<'a>]>;
}

/// With numbered placeholders.
impl Written for &'static str {
    fn sql(self) -> &'static str {
        self
    }

    fn arrange<'v, 'a>(self, values: &'v [Value<'a>]) -> Cow<'v, [Value<'a>]> {
        Cow::Borrowed(values)
    }
}

/// How a statement with values is sent.
#[derive(Clone, Copy, Debug)]
pub enum Sending {
    /// Prepared under a name, once for each connection.
    Prepared,
    /// As text, with the values written into it by this function.
    Plain(fn(Value<'_>) -> String),
}

/// Writes values into a statement with numbered placeholders, in which nothing else has a `$`.
pub(crate) fn inline(sql: &str, values: &[Value<'_>], literal: fn(Value<'_>) -> String) -> String {
    let mut parts = sql.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        let place = number.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
        let value = place.and_then(|place| values.get(place));
        text += &value.copied().map_or_else(String::new, literal);
        text += rest;
    }
    text
}

/// Runs one statement.
pub trait Driver: Database {
    /// How statements are written.
    type Written: Written;

    /// Returns how many rows it changed.
    fn execute(
        conn: &mut Self::Connection,
        sending: Sending,
        statement: Self::Written,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Returns the record it found.
    fn fetch_record(
        conn: &mut Self::Connection,
        sending: Sending,
        statement: Self::Written,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<Option<Row>, sqlx::Error>> + Send;

    /// Runs statements without values, as they are written.
    fn simple(
        conn: &mut Self::Connection,
        sql: SqlStr,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// Text, whether it comes as such or as bytes.
pub(crate) fn text(value: impl Into<Vec<u8>>) -> Result<String, sqlx::Error> {
    String::from_utf8(value.into()).map_err(|error| sqlx::Error::Decode(error.into()))
}

macro_rules! impl_driver {
    ($db:ty, $statement:ty, $arguments:ty, $row:ty, $text:ty) => {
        impl $crate::driver::Driver for $db {
            type Written = $statement;

            async fn execute(
                conn: &mut Self::Connection,
                sending: $crate::driver::Sending,
                statement: $statement,
                values: &[$crate::driver::Value<'_>],
            ) -> Result<u64, sqlx::Error> {
                use $crate::driver::{Sending, Written as _, inline};

                let sql = $crate::sent::statement(statement.sql());
                let done = match sending {
                    Sending::Prepared => {
                        let values = bind(&statement.arrange(values))?;
                        let query = sqlx::query_with(sql, values);
                        query.execute(conn).await?
                    }
                    Sending::Plain(literal) => {
                        let sql = inline(sql, values, literal);
                        let query = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
                        query.execute(conn).await?
                    }
                };
                Ok(done.rows_affected())
            }

            async fn fetch_record(
                conn: &mut Self::Connection,
                sending: $crate::driver::Sending,
                statement: $statement,
                values: &[$crate::driver::Value<'_>],
            ) -> Result<Option<$crate::row::Row>, sqlx::Error> {
                use $crate::driver::{Sending, Written as _, inline};

                let sql = $crate::sent::statement(statement.sql());
                // All rows, though there is one at most: `fetch_optional` ends a statement before
                // SQLite commits it, and says nothing where it then does not.
                let rows = match sending {
                    Sending::Prepared => {
                        let values = bind(&statement.arrange(values))?;
                        let query = sqlx::query_with(sql, values);
                        query.fetch_all(conn).await?
                    }
                    Sending::Plain(literal) => {
                        let sql = inline(sql, values, literal);
                        let query = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
                        sqlx::Executor::fetch_all(conn, query).await?
                    }
                };
                rows.first().map(read).transpose()
            }

            async fn simple(
                conn: &mut Self::Connection,
                sql: sqlx::SqlStr,
            ) -> Result<(), sqlx::Error> {
                let sql = $crate::sent::composed(sql);
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
            use $crate::driver::text;

            let some_text = |column: usize| {
                let value: Option<$text> = row.try_get(column)?;
                value.map(text).transpose()
            };
            Ok($crate::row::Row {
                state: text(row.try_get::<$text, _>(0)?)?,
                claim_token: row.try_get(1)?,
                claimed_at_ms: row.try_get(2)?,
                stale: row.try_get(3)?,
                fingerprint: some_text(4)?,
                status: row.try_get(5)?,
                kept: row.try_get(6)?,
                headers: row.try_get(7)?,
                body: row.try_get(8)?,
                resource_ref: some_text(9)?,
                expired: row.try_get(10)?,
            })
        }
    };
}

#[cfg(test)]
mod tests {
    use super::{Value, inline};

    /// Each value stands where its number is, as often as that is, and its text is left alone.
    #[test]
    fn values_are_written_into_statements() {
        let literal = |value: Value<'_>| match value {
            Value::Text(text) => format!("<{text}>"),
            _ => "?".to_owned(),
        };
        let mut values = [Value::Bool(true); 11];
        (values[0], values[10]) = (Value::Text("$2"), Value::Text("b"));
        let sql = inline("SELECT $1, $11::text, $2 WHERE $1", &values, literal);
        assert_eq!(sql, "SELECT <$2>, <b>::text, ? WHERE <$2>");
    }
}
