//! The service as a process: served, killed, shut down, and without descriptors.

#[cfg(target_os = "linux")]
mod descriptors;
mod service;

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqliteConnection};
use test_support::{mysql_database, postgres_database, sqlite_database};

use service::Service;

/// Waits until a request of that key is being processed.
async fn claimed(database_url: &str, key: &str) {
    let scheme = database_url.split(':').next();
    let table = match scheme {
        Some("postgres") => "tower_idempotency.record",
        _ => "tower_idempotency_record",
    };
    let sql =
        format!("SELECT count(*) FROM {table} AS r WHERE r.key = '{key}' AND state = 'claimed'");
    let claimed = || async {
        let sql = AssertSqlSafe(sql.clone());
        let claimed: i64 = match scheme {
            Some("sqlite") => {
                let mut conn = SqliteConnection::connect(database_url).await?;
                sqlx::query_scalar(sql).fetch_one(&mut conn).await?
            }
            Some("mysql") => {
                let mut conn = MySqlConnection::connect(database_url).await?;
                sqlx::query_scalar(sql).fetch_one(&mut conn).await?
            }
            _ => {
                let mut conn = PgConnection::connect(database_url).await?;
                sqlx::query_scalar(sql).fetch_one(&mut conn).await?
            }
        };
        Ok::<_, sqlx::Error>(claimed)
    };
    while claimed().await.expect("a count") != 1 {}
}

/// R33, R50: the claim of a killed process is taken over after `stale_after`, and there is one post.
async fn a_killed_process_is_taken_over(database_url: &str) {
    let mut service = Service::start(database_url).await;
    let draft = json!({"title": "t", "body": "b", "delay_ms": 0});
    assert_eq!(
        service.post("before", &draft).await.unwrap().status(),
        StatusCode::CREATED
    );

    let slow = json!({"title": "t", "body": "b", "delay_ms": 10_000});
    let sent = tokio::spawn({
        let (base, http, slow) = (service.base.clone(), service.http.clone(), slow.clone());
        async move {
            let request = http
                .post(format!("{base}/posts"))
                .header("x-demo-user", "ann");
            request
                .header("idempotency-key", "k")
                .json(&slow)
                .send()
                .await
        }
    });
    claimed(database_url, "k").await;
    service.process.kill().await.unwrap();
    assert!(sent.await.unwrap().is_err(), "no answer from the dead");

    let service = Service::start(database_url).await;
    let replay = service.post("before", &draft).await.unwrap();
    assert_eq!(
        replay.headers()["idempotent-replayed"],
        "true",
        "what was committed is there"
    );
    let quick = json!({"title": "t", "body": "b", "delay_ms": 0});
    let made = loop {
        // Whatever its body: nothing of the dead one's was committed.
        let answer = service.post("k", &quick).await.unwrap();
        if answer.status() == StatusCode::CREATED {
            break answer;
        }
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(!made.headers().contains_key("idempotent-replayed"));
    assert_eq!(service.posts().await.len(), 2);
}

/// R59: a service that is told to stop answers what it has begun, and leaves nothing behind.
async fn a_shutdown_is_graceful(database_url: &str) {
    let mut service = Service::start(database_url).await;
    let slow = json!({"title": "t", "body": "b", "delay_ms": 500});
    let (answer, ()) = tokio::join!(service.post("k", &slow), async {
        claimed(database_url, "k").await;
        service.signal("-TERM");
    });
    assert_eq!(answer.unwrap().status(), StatusCode::CREATED);
    let ended = tokio::time::timeout(Duration::from_secs(10), service.process.wait()).await;
    assert!(ended.expect("it stops").unwrap().success());

    let service = Service::start(database_url).await;
    assert_eq!(service.posts().await.len(), 1);
}

/// R35, R51, R52: what the README tells people to try.
async fn the_tour(database_url: &str) {
    let service = Service::start(database_url).await;
    let hello = json!({"title": "Hello", "body": "World"});
    let first = service.post("k1", &hello).await.unwrap();
    assert_eq!(first.status(), StatusCode::CREATED);
    let location = first.headers()["location"].clone();
    let made: Value = first.json().await.unwrap();
    let id = made["id"].as_str().unwrap();
    assert_eq!(location, format!("/posts/{id}"));

    let again = service.post("k1", &hello).await.unwrap();
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(again.headers()["location"], location);
    assert_eq!(again.json::<Value>().await.unwrap(), made);
    assert_eq!(service.posts().await.len(), 1);

    let moon = json!({"title": "Hello", "body": "Moon"});
    assert_eq!(
        service.post("k1", &moon).await.unwrap().status(),
        StatusCode::CONFLICT
    );
    assert_eq!(service.delete(id).await, StatusCode::NO_CONTENT);
    assert_eq!(
        service.post("k1", &hello).await.unwrap().status(),
        StatusCode::GONE
    );
    assert_eq!(service.delete(id).await, StatusCode::NOT_FOUND);

    let nobody = service
        .http
        .post(format!("{}/posts", service.base))
        .json(&hello)
        .send()
        .await;
    assert_eq!(nobody.unwrap().status(), StatusCode::UNAUTHORIZED);
    let keyless = service
        .http
        .post(format!("{}/posts", service.base))
        .header("x-demo-user", "ann");
    assert_eq!(
        keyless.json(&hello).send().await.unwrap().status(),
        StatusCode::BAD_REQUEST
    );
    let long = json!({"title": "Hello", "body": "World", "delay_ms": 60_001});
    assert_eq!(
        service.post("k2", &long).await.unwrap().status(),
        StatusCode::UNPROCESSABLE_ENTITY
    );
}

macro_rules! on_every_database {
    ($($test:ident)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let database = super::sqlite_database();
                super::$test(&database.url()).await;
            })*
        }

        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let database = super::mysql_database().await;
                super::$test(database.url()).await;
                database.assert_none_idle_in_transaction().await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let database = super::postgres_database().await;
                super::$test(database.url()).await;
                database.assert_none_idle_in_transaction().await;
            })*
        }
    };
}

on_every_database! { a_killed_process_is_taken_over a_shutdown_is_graceful the_tour }
