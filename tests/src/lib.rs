//! What the end-to-end tests have in common: a database with a table of effects, a server on a
//! real socket, and a client that sends keys.

mod client;
mod database;
mod raw;
mod server;
mod stage;

pub use client::{Answer, Client};
pub use database::{ServerDb, TestDb, World};
pub use raw::Raw;
pub use server::{Act, Server, act, authenticate, effects_app};
pub use stage::Stage;

/// Runs each test on every database behind a connection, as `name::postgres` and `name::mysql`.
#[macro_export]
macro_rules! on_every_server {
    ($($(#[$meta:meta])* async fn $name:ident<$db:ident>() $body:block)*) => {$(
        $(#[$meta])*
        async fn $name<$db: $crate::ServerDb>() $body

        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$name::<sqlx::Postgres>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mysql() {
                super::$name::<sqlx::MySql>().await;
            }
        }
    )*};
}

/// Runs each test on every database, as `name::sqlite`, `name::postgres` and `name::mysql`.
#[macro_export]
macro_rules! on_every_database {
    ($($(#[$meta:meta])* async fn $name:ident<$db:ident>() $body:block)*) => {$(
        $(#[$meta])*
        async fn $name<$db: $crate::TestDb>() $body

        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name::<sqlx::Sqlite>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$name::<sqlx::Postgres>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mysql() {
                super::$name::<sqlx::MySql>().await;
            }
        }
    )*};
}
