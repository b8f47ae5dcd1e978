//! The posts, in either database.

use std::future::Future;

use serde::Serialize;
use sqlx::{Pool, Postgres, Sqlite};
use tower_idempotency::Dialect;

/// A post.
#[derive(Serialize, sqlx::FromRow)]
pub(crate) struct Post {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) body: String,
}

/// The statements on posts. The SQL is the same everywhere; only sqlx's types differ.
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
    ($db:ty) => {
        impl Posts for $db {
            async fn make_table(pool: &Pool<Self>) -> sqlx::Result<()> {
                let sql = "CREATE TABLE IF NOT EXISTS post (
                    id text PRIMARY KEY, author text NOT NULL, title text NOT NULL, body text NOT NULL
                )";
                sqlx::query(sql).execute(pool).await?;
                Ok(())
            }

            async fn insert(conn: &mut Self::Connection, author: &str, post: &Post) -> sqlx::Result<()> {
                sqlx::query("INSERT INTO post (id, author, title, body) VALUES ($1, $2, $3, $4)")
                    .bind(&post.id)
                    .bind(author)
                    .bind(&post.title)
                    .bind(&post.body)
                    .execute(conn)
                    .await?;
                Ok(())
            }

            async fn list(pool: &Pool<Self>, author: &str) -> sqlx::Result<Vec<Post>> {
                sqlx::query_as("SELECT id, title, body FROM post WHERE author = $1 ORDER BY id")
                    .bind(author)
                    .fetch_all(pool)
                    .await
            }

            async fn read(pool: &Pool<Self>, author: &str, id: &str) -> sqlx::Result<Option<Post>> {
                sqlx::query_as("SELECT id, title, body FROM post WHERE author = $1 AND id = $2")
                    .bind(author)
                    .bind(id)
                    .fetch_optional(pool)
                    .await
            }

            async fn delete(conn: &mut Self::Connection, author: &str, id: &str) -> sqlx::Result<bool> {
                let done = sqlx::query("DELETE FROM post WHERE author = $1 AND id = $2")
                    .bind(author)
                    .bind(id)
                    .execute(conn)
                    .await?;
                Ok(done.rows_affected() > 0)
            }
        }
    };
}

impl_posts!(Postgres);
impl_posts!(Sqlite);
