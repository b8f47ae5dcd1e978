//! What a log shows, and what it never does.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::any;
use end_to_end::{Answer, Client, Server, TestDb, World, effects_app};
use http::Method;
use serde_json::json;
use sqlx::{MySql, Postgres, Sqlite};
use tracing_subscriber::fmt::format::FmtSpan;

/// Everything that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// R3: a span tells the operation, a short hash of the key, the outcome and how long each step took;
/// no log has a key, an owner, a body or a token in clear.
#[tokio::test]
async fn secrets_are_not_logged() {
    // One subscriber after the other: where one ends, tracing asks all others anew.
    nothing_is_logged_that_nobody_may_see::<Sqlite>().await;
    nothing_is_logged_that_nobody_may_see::<Postgres>().await;
    nothing_is_logged_that_nobody_may_see::<MySql>().await;
}

async fn nothing_is_logged_that_nobody_may_see<D: TestDb>() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_env_filter("info,tower_idempotency_core=trace,tower_idempotency_sqlx=trace")
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // The runtime of this test has one thread, so that its tasks are seen too.
    let _guard = tracing::subscriber::set_default(subscriber);

    let world = World::<D>::new().await;
    let layer = world.layer().store_timeout(Duration::from_secs(1));
    let server = Server::start(effects_app(&layer)).await;
    let client = Client::new(&server);
    let secret_key = "k3y-that-nobody-may-see";
    let send = |owner: &'static str, act: serde_json::Value| {
        let mut request = client.request(Method::POST, "/effects").build().unwrap();
        request
            .headers_mut()
            .insert("x-owner", owner.parse().unwrap());
        request
            .headers_mut()
            .insert("idempotency-key", secret_key.parse().unwrap());
        request
            .headers_mut()
            .insert("content-type", "application/json".parse().unwrap());
        *request.body_mut() = Some(act.to_string().into());
        reqwest::Client::builder()
            .no_proxy()
            .build()
            .unwrap()
            .execute(request)
    };
    let owner = "0wner-that-nobody-may-see";
    let body = json!({"note": "b0dy-that-nobody-may-see"});
    assert_eq!(send(owner, body.clone()).await.unwrap().status(), 201);
    assert_eq!(send(owner, body.clone()).await.unwrap().status(), 201);
    assert_eq!(
        send(owner, json!({"note": "b0dy-2"}))
            .await
            .unwrap()
            .status(),
        409
    );
    assert_eq!(
        send("another", json!({"note": "b0dy-3", "answer": 500}))
            .await
            .unwrap()
            .status(),
        500
    );
    world.pool.close().await;
    let down = client.post("/effects", secret_key, &body).await;
    let text = Answer::json(&down).to_string();
    assert_eq!(down.status, 503);

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for secret in [secret_key, owner, "b0dy"] {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
        assert!(!text.contains(secret), "{secret} is in a problem: {text}");
    }
    let token_like =
        |word: &str| word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = || log.split(|c: char| !c.is_ascii_alphanumeric());
    assert!(!words().any(token_like), "a token is in the log:\n{log}");

    let closed = |outcome: &str| {
        let outcome = format!("outcome=\"{outcome}\"");
        let found = log
            .lines()
            .find(|line| line.contains(&outcome) && line.contains("close"));
        found
            .unwrap_or_else(|| panic!("no span with {outcome} in:\n{log}"))
            .to_owned()
    };
    let completed = closed("completed");
    for field in [
        "operation=\"effects\"",
        "key_hash=",
        "claim_us=",
        "begin_us=",
        "complete_us=",
    ] {
        assert!(
            completed.contains(field),
            "{field} is missing in {completed}"
        );
    }
    assert!(closed("freed").contains("undo_us="));
    closed("replayed");
    closed("mismatch");
    assert!(
        log.contains("WARN") && log.contains("store failure"),
        "{log}"
    );
}

/// What looks like a mistake is said once, for each operation and method: a handler that never uses its
/// transaction, and a key with a method that is not covered.
#[tokio::test]
async fn what_looks_like_a_mistake_is_said_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("warn")
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let world = World::<Sqlite>::new().await;
    let forgetful = any(async || StatusCode::CREATED).layer(world.layer().operation("forgetful"));
    let app = effects_app(&world.layer()).route("/forgetful", forgetful);
    let server = Server::start(app).await;
    let client = Client::new(&server);
    for key in ["1", "2", "2"] {
        for path in ["/effects", "/forgetful"] {
            let answer = client.post(path, key, &json!({"note": "x"})).await;
            assert_eq!(answer.status, StatusCode::CREATED);
        }
        for method in [Method::GET, Method::DELETE, Method::PUT] {
            let request = client.request(method, "/forgetful");
            Answer::of(request.header("idempotency-key", key)).await;
        }
    }
    // A method of the client's own, and what no handler has answered, are nobody's mistake here.
    for (method, path) in [("PURGE", "/forgetful"), ("DELETE", "/effects")] {
        let request = client.request(Method::from_bytes(method.as_bytes()).unwrap(), path);
        Answer::of(request.header("idempotency-key", "1")).await;
    }

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let warned = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!(warned("never used its transaction"), 1, "{log}");
    assert_eq!(warned("operation=\"forgetful\""), 1, "{log}");
    assert_eq!(warned("passed unprotected"), 2, "{log}");
    assert_eq!(
        warned("method=\"DELETE\"") + warned("method=\"PUT\""),
        2,
        "{log}"
    );
    assert_eq!(log.lines().count(), 3, "{log}");
    world.end().await;
}
