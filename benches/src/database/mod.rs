//! The databases that are measured, one file each.

mod mysql;
mod postgres;
mod sqlite;

use std::future::Future;

use sqlx::{Pool, SqlStr};
use tower_idempotency::{Dialect, SqlxStore};

use crate::post::Draft;

pub use mysql::MariadbEngine;
pub use postgres::PostgresEngine;

/// What the protocol's statements are about, where they are written into the handler.
#[derive(Debug)]
pub struct HandClaim<'a> {
    /// Who asks.
    pub owner: &'a str,
    /// Under which key.
    pub key: &'a str,
    /// Whose claim it is, if it is made.
    pub token: [u8; 16],
    /// Of the request.
    pub fingerprint: &'a str,
}

/// What a claim by hand found.
#[derive(Debug)]
pub enum Found {
    /// Nothing: the claim is made.
    Acquired,
    /// The result of an earlier request.
    Completed {
        /// Its status.
        status: u16,
        /// Its body.
        body: Vec<u8>,
    },
    /// An earlier request that has not ended.
    InProgress,
    /// An earlier request that was another one.
    Mismatch,
}

/// A database that can be measured.
pub trait BenchDb: Dialect {
    /// As it is called in the table.
    const TITLE: &'static str;

    /// Statements after which only what lives takes room.
    const TIDY: &'static [&'static str];

    /// Statements after which it takes the least.
    const PACK: &'static [&'static str];

    /// A running engine, or a file.
    type Engine: Send + Sync;

    /// Makes an empty database with the tables `post` and `reply`, and the records'.
    fn database(engine: &Self::Engine, connections: u32)
    -> impl Future<Output = Pool<Self>> + Send;

    /// The store with relaxed claims, where there are such.
    fn relaxed(store: SqlxStore<Self>) -> Option<SqlxStore<Self>>;

    /// Adds a post.
    fn insert(
        conn: &mut Self::Connection,
        owner: &str,
        draft: &Draft,
    ) -> impl Future<Output = sqlx::Result<i64>> + Send;

    /// Keeps a body under a primary key.
    fn keep(
        conn: &mut Self::Connection,
        key: &str,
        body: &[u8],
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Reads it.
    fn kept(
        conn: &mut Self::Connection,
        key: &str,
    ) -> impl Future<Output = sqlx::Result<Option<Vec<u8>>>> + Send;

    /// The protocol's claim, by hand.
    fn hand_claim(
        conn: &mut Self::Connection,
        claim: &HandClaim<'_>,
    ) -> impl Future<Output = sqlx::Result<Found>> + Send;

    /// How the protocol's transaction begins, by hand.
    fn hand_begin(token: &str) -> SqlStr;

    /// Proves, on its way to completion, that the transaction is the one that was begun, where
    /// [`hand_complete`](Self::hand_complete) does not.
    const PROOF: Option<&'static str>;

    /// The protocol's completion, by hand. Says whether it matched.
    fn hand_complete(
        conn: &mut Self::Connection,
        claim: &HandClaim<'_>,
        status: u16,
        headers: &[u8],
        body: &[u8],
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Runs a statement that a figure wrote.
    fn run(conn: &mut Self::Connection, sql: &str)
    -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Reads one number.
    fn number(pool: &Pool<Self>, sql: &str) -> impl Future<Output = i64> + Send;

    /// How many bytes the records take, with their indexes.
    fn size_of_records(pool: &Pool<Self>) -> impl Future<Output = i64> + Send;
}

/// What is the same in every driver, but that sqlx's traits do not let be generic.
macro_rules! statements {
    (insert: $insert:literal, complete: $complete:literal, keep: $keep:literal, kept: $kept:literal) => {
        async fn insert(
            conn: &mut Self::Connection,
            owner: &str,
            draft: &$crate::post::Draft,
        ) -> sqlx::Result<i64> {
            sqlx::query_scalar($insert)
                .bind(owner)
                .bind(&draft.title)
                .bind(&draft.text)
                .fetch_one(conn)
                .await
        }

        async fn hand_complete(
            conn: &mut Self::Connection,
            claim: &$crate::database::HandClaim<'_>,
            status: u16,
            headers: &[u8],
            body: &[u8],
        ) -> sqlx::Result<bool> {
            if let Some(proof) = Self::PROOF {
                sqlx::raw_sql(proof).execute(&mut *conn).await?;
            }
            let done = sqlx::query($complete)
                .bind(i64::from(status))
                .bind(headers)
                .bind(body)
                .bind(claim.owner)
                .bind(claim.key)
                .bind(&claim.token[..])
                .execute(conn)
                .await?;
            Ok(done.rows_affected() == 1)
        }

        async fn keep(conn: &mut Self::Connection, key: &str, body: &[u8]) -> sqlx::Result<()> {
            sqlx::query($keep)
                .bind(key)
                .bind(body)
                .execute(conn)
                .await
                .map(drop)
        }

        async fn kept(conn: &mut Self::Connection, key: &str) -> sqlx::Result<Option<Vec<u8>>> {
            sqlx::query_scalar($kept)
                .bind(key)
                .fetch_optional(conn)
                .await
        }

        async fn run(conn: &mut Self::Connection, sql: &str) -> sqlx::Result<()> {
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
                .execute(conn)
                .await
                .map(drop)
        }

        async fn number(pool: &sqlx::Pool<Self>, sql: &str) -> i64 {
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
                .fetch_one(pool)
                .await
                .expect("a number")
        }
    };
}
use statements;

/// Reads the columns state, fingerprint, status, body of what a claim by hand returned.
macro_rules! found {
    ($row:expr, $claim:expr) => {{
        use sqlx::Row as _;
        use $crate::database::Found;

        let state: String = $row.try_get(0)?;
        let fingerprint: Option<String> = $row.try_get(1)?;
        match state.as_str() {
            "acquired" => Found::Acquired,
            _ if fingerprint.as_deref() != Some($claim.fingerprint) => Found::Mismatch,
            "completed" => Found::Completed {
                status: $row
                    .try_get::<Option<i64>, _>(2)?
                    .and_then(|status| u16::try_from(status).ok())
                    .unwrap_or(500),
                body: $row.try_get::<Option<Vec<u8>>, _>(3)?.unwrap_or_default(),
            },
            _ => Found::InProgress,
        }
    }};
}
use found;

/// The protocol's claim where it looks before it inserts.
macro_rules! look_then_insert {
    (look: $look:literal, insert: $insert:literal) => {
        async fn hand_claim(
            conn: &mut Self::Connection,
            claim: &$crate::database::HandClaim<'_>,
        ) -> sqlx::Result<$crate::database::Found> {
            // Again where somebody else inserted in between.
            loop {
                let row = sqlx::query($look)
                    .bind(claim.owner)
                    .bind(claim.key)
                    .fetch_optional(&mut *conn)
                    .await?;
                if let Some(row) = row {
                    return Ok($crate::database::found!(row, claim));
                }
                let inserted = sqlx::query($insert)
                    .bind(claim.owner)
                    .bind(claim.key)
                    .bind(&claim.token[..])
                    .bind(claim.fingerprint)
                    .execute(&mut *conn)
                    .await;
                match inserted {
                    Ok(_) => return Ok($crate::database::Found::Acquired),
                    Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
                    Err(error) => return Err(error),
                }
            }
        }
    };
}
use look_then_insert;
