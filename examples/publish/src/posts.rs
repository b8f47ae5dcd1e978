//! The posts, in each database.

use std::future::Future;

use serde::Serialize;
use sqlx::{MySql, Pool, Postgres, Sqlite};
use tower_idempotency::Dialect;

/// A post.
#[derive(Serialize, sqlx::FromRow)]
pub(crate) struct Post {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) body: String,
}

/// The statements on posts. Besides sqlx's types, placeholders differ, and MySQL must be told to
/// tell `ann` from `Ann`.
pub(crate) trait Posts: Dialect {
    fn make_table(pool: &Pool<Self>) -> impl Future<Output = sqlx::Result<()>> + Send;

    fn insert(
        conn: &mut Self::Connection,
        author: &str,
        post: &Post,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    fn list(
        pool: &Pool<Self>,
        author: &str,
    ) -> impl Future<Output = sqlx::Result<Vec<Post>>> + Send;

    fn read(
        pool: &Pool<Self>,
        author: &str,
        id: &str,
    ) -> impl Future<Output = sqlx::Result<Option<Post>>> + Send;

    /// Says whether there was one to delete.
    fn delete(
        conn: &mut Self::Connection,
        author: &str,
        id: &str,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;
}

macro_rules! impl_posts {
    ($db:ty, $a:literal, $b:literal, $c:literal, $d:literal, $bytes:literal) => {
        impl Posts for $db {
            async fn make_table(pool: &Pool<Self>) -> sqlx::Result<()> {
                let sql = concat!(
                    "CREATE TABLE IF NOT EXISTS post (id varchar(36) PRIMARY KEY, \
                     author varchar(255) NOT NULL, title text NOT NULL, body text NOT NULL)",
                    $bytes
                );
                sqlx::query(sql).execute(pool).await?;
                Ok(())
            }

            async fn insert(conn: &mut Self::Connection, author: &str, post: &Post) -> sqlx::Result<()> {
                let sql = concat!(
                    "INSERT INTO post (id, author, title, body) VALUES (", $a, ", ", $b, ", ", $c, ", ", $d, ")"
                );
                sqlx::query(sql)
                    .bind(&post.id)
                    .bind(author)
                    .bind(&post.title)
                    .bind(&post.body)
                    .execute(conn)
                    .await?;
                Ok(())
            }

            async fn list(pool: &Pool<Self>, author: &str) -> sqlx::Result<Vec<Post>> {
                let sql = concat!("SELECT id, title, body FROM post WHERE author = ", $a, " ORDER BY id");
                sqlx::query_as(sql)
                    .bind(author)
                    .fetch_all(pool)
                    .await
            }

            async fn read(pool: &Pool<Self>, author: &str, id: &str) -> sqlx::Result<Option<Post>> {
                let sql = concat!("SELECT id, title, body FROM post WHERE author = ", $a, " AND id = ", $b);
                sqlx::query_as(sql)
                    .bind(author)
                    .bind(id)
                    .fetch_optional(pool)
                    .await
            }

            async fn delete(conn: &mut Self::Connection, author: &str, id: &str) -> sqlx::Result<bool> {
                let sql = concat!("DELETE FROM post WHERE author = ", $a, " AND id = ", $b);
                let done = sqlx::query(sql)
                    .bind(author)
                    .bind(id)
                    .execute(conn)
                    .await?;
                Ok(done.rows_affected() > 0)
            }
        }
    };
}

impl_posts!(Postgres, "$1", "$2", "$3", "$4", "");
impl_posts!(Sqlite, "?", "?", "?", "?", "");
impl_posts!(
    MySql,
    "?",
    "?",
    "?",
    "?",
    " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
);
