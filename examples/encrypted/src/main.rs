//! A service that hands out secrets, whose stored results nobody can read without its key.
//!
//! Run with
//!
//! ```text
//! cargo run -p encrypted
//! ```
//!
//! and try, in another terminal:
//!
//! ```text
//! make() { curl -i http://127.0.0.1:3000/tokens -H 'X-Demo-User: ann' -H 'Content-Type: application/json' -d '{"name":"laptop"}' "$@"; }
//!
//! make -H 'Idempotency-Key: k1'    # 201
//! make -H 'Idempotency-Key: k1'    # 201, the same token, Idempotent-Replayed: true
//! sqlite3 encrypted.db 'SELECT hex(body) FROM tower_idempotency_record'    # no token in sight
//! ```
//!
//! Started again without `RESULT_KEY` it has another key, and says so: 500 `record-unreadable`.
//!
//! | variable | default | what it is |
//! |---|---|---|
//! | `RESULT_KEY` | a random one | 64 hexadecimal digits: what stored results are sealed with |

mod app;
mod sealed;
#[cfg(test)]
mod tests;

use std::env;
use std::error::Error;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use tokio::net::TcpListener;
use tower_idempotency::{IdempotencyLayer, migrate};

use crate::sealed::Sealed;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let key = match env::var("RESULT_KEY") {
        Ok(digits) => parse_key(&digits).ok_or("RESULT_KEY must be 64 hexadecimal digits")?,
        Err(_) => {
            println!("RESULT_KEY is not set: what is stored now can be read by this process alone");
            let mut key = [0; 32];
            getrandom::fill(&mut key)?;
            key
        }
    };
    // WAL: readers and the one writer do not wait for each other.
    let options = SqliteConnectOptions::new()
        .filename("encrypted.db")
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().connect_with(options).await?;
    migrate(&pool).await?;
    app::make_table(&pool).await?;

    let idempotency = IdempotencyLayer::new(pool).codec(Sealed::new(key));
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app::authenticated(app::router(idempotency))).await?;
    Ok(())
}

fn parse_key(digits: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (n, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(key)
}
