//! What lies between a client and PostgreSQL.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use tokio::time::timeout;
use tower_idempotency_core::ClaimToken;

use crate::leash::hex;

/// A pooler that gives each transaction another connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pooler {
    /// It takes a client's prepared statements along.
    Prepares,
    /// A prepared statement may be missing, or another client's.
    MixesUp,
}

/// How long it may take; a pooler with one connection has none to show the difference on.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often it is tried: whose connection is taken is up to the pooler.
const ROUNDS: usize = 3;

/// Looks for a pooler in transaction mode: where another client is inside of a transaction, the same
/// statement of ours comes to another process of the server. `None` where there is none to be seen.
pub(super) async fn probe(pool: &PgPool) -> Option<Pooler> {
    let options = pool.connect_options();
    let probed = timeout(PATIENCE, compare(&options)).await;
    // Connections that are not to be had are no finding.
    probed.ok()?.ok()?
}

async fn compare(options: &PgConnectOptions) -> Result<Option<Pooler>, sqlx::Error> {
    let mut ours = PgConnection::connect_with(options).await?;
    let mut other = PgConnection::connect_with(options).await?;
    let nonce = hex(&ClaimToken::random());
    let before = process(&mut ours, &nonce).await;
    let mut found = before.is_err().then_some(Pooler::MixesUp);
    for _ in 0..ROUNDS {
        if found.is_some() {
            break;
        }
        // From now on the other holds a connection to the server: ours, most likely.
        sqlx::raw_sql("BEGIN; SELECT 1").execute(&mut other).await?;
        let now = process(&mut ours, &nonce).await;
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
        if now.is_err() {
            found = Some(Pooler::MixesUp);
        } else if now != before {
            found = Some(Pooler::Prepares);
        }
    }
    other.close().await?;
    ours.close().await?;
    Ok(found)
}

/// The server's process, by a prepared statement. An error: it is missing, there already, or not what
/// was prepared, which the nonce shows.
async fn process(conn: &mut PgConnection, nonce: &str) -> Result<i32, ()> {
    // Made of hexadecimal digits and words of ours.
    let sql = AssertSqlSafe(format!("SELECT pg_backend_pid(), '{nonce}'"));
    let prepared: Result<(i32, String), _> = sqlx::query_as(sql).fetch_one(conn).await;
    match prepared {
        Ok((process, answered)) if answered == nonce => Ok(process),
        Ok(_) | Err(_) => Err(()),
    }
}
