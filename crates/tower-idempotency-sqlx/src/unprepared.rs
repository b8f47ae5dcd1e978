//! Statements without preparing them.

use std::fmt::Write as _;
use std::sync::Arc;

use sqlx::Postgres;

use crate::driver::{Sending, Value};
use crate::joined::Joined;
use crate::store::SqlxStore;

impl SqlxStore<Postgres> {
    /// Prepares no statements: their values are written into them, as hexadecimal digits.
    ///
    /// For a pooler in transaction mode that keeps no prepared statements, such as PgBouncer before
    /// 1.21, behind which a prepared statement may be another client's. Behind a newer one with
    /// `max_prepared_statements`, and without a pooler, the default is right, and spares the server the
    /// planning. Only the layer's own statements are sent so: a handler's need `.persistent(false)`
    /// there, which is right inside of its [`Tx`](crate::Tx), and nowhere else.
    ///
    /// The values are then part of what sqlx logs of a statement (by default where it takes longer than
    /// a second), and the server of one that fails: keys and results, as hexadecimal digits. Switch the
    /// former off with `.log_slow_statements(LevelFilter::Off, ..)` and `.log_statements(..)`.
    ///
    /// Results come as text then: leave `bytea_output` at `hex`, its default. With `escape` sqlx cannot
    /// read a record, and arrivals are answered 503.
    ///
    /// ```no_run
    /// # fn layer(pool: sqlx::PgPool) {
    /// use tower_idempotency_core::IdempotencyLayer;
    /// use tower_idempotency_sqlx::SqlxStore;
    ///
    /// let layer = IdempotencyLayer::with_store(SqlxStore::new(pool).unprepared());
    /// # }
    /// ```
    #[must_use]
    pub fn unprepared(mut self) -> Self {
        self.sending = Sending::Plain(literal);
        let relaxed = self.joined.is_some_and(|joined| joined.relaxed);
        self.joined = Some(Arc::new(Joined::new(
            self.pool.clone(),
            self.sending,
            relaxed,
        )));
        self
    }
}

/// A value as SQL, whatever is in it: of text and bytes only hexadecimal digits are written, so that
/// no setting for strings and no quote can end it early.
fn literal(value: Value<'_>) -> String {
    let bytes = |bytes: &[u8]| {
        let mut digits = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            let _ = write!(digits, "{byte:02x}");
        }
        format!("decode('{digits}', 'hex')")
    };
    match value {
        Value::Text(text) | Value::MaybeText(Some(text)) => {
            format!("convert_from({}, 'UTF8')", bytes(text.as_bytes()))
        }
        Value::Bytes(value) | Value::MaybeBytes(Some(value)) => bytes(value),
        Value::Int(value) | Value::MaybeInt(Some(value)) => format!("({value}::bigint)"),
        Value::Bool(value) => value.to_string(),
        Value::MaybeText(None) => "NULL::text".to_owned(),
        Value::MaybeBytes(None) => "NULL::bytea".to_owned(),
        Value::MaybeInt(None) => "NULL::bigint".to_owned(),
    }
}
