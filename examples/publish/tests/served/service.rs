//! A process that runs the service.

use std::process::Stdio;
use std::time::Duration;

use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running service. Killed where it is dropped.
pub(crate) struct Service {
    pub(crate) process: Child,
    pub(crate) base: String,
    pub(crate) http: reqwest::Client,
}

impl Service {
    pub(crate) async fn start(database_url: &str) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_publish")), database_url).await
    }

    /// With at most so many file descriptors.
    #[cfg(target_os = "linux")]
    pub(crate) async fn start_with_descriptors(database_url: &str, descriptors: usize) -> Self {
        let mut limited = Command::new("/bin/sh");
        limited
            .args(["-c", "ulimit -n \"$0\" && exec \"$1\""])
            .args([&descriptors.to_string(), env!("CARGO_BIN_EXE_publish")]);
        Self::run(limited, database_url).await
    }

    async fn run(mut command: Command, database_url: &str) -> Self {
        let mut process = command
            .env("DATABASE_URL", database_url)
            .env("LISTEN", "127.0.0.1:0")
            .env("STALE_AFTER", "1")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the service starts");
        let stdout = process.stdout.take().expect("a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let line = lines.next_line().await.expect("a line").expect("a line");
        let base = line.split(' ').nth(2).expect("listening on URL").to_owned();
        // The pipe stays open, so that the service can say goodbye.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(30))
            .build()
            .expect("a client");
        Self {
            process,
            base,
            http,
        }
    }

    pub(crate) async fn post(&self, key: &str, draft: &Value) -> reqwest::Result<Response> {
        let request = self
            .http
            .post(format!("{}/posts", self.base))
            .header("x-demo-user", "ann");
        request
            .header("idempotency-key", key)
            .json(draft)
            .send()
            .await
    }

    pub(crate) async fn posts(&self) -> Vec<Value> {
        let request = self
            .http
            .get(format!("{}/posts", self.base))
            .header("x-demo-user", "ann");
        request
            .send()
            .await
            .expect("an answer")
            .json()
            .await
            .expect("a list")
    }

    pub(crate) async fn delete(&self, id: &str) -> StatusCode {
        let request = self.http.delete(format!("{}/posts/{id}", self.base));
        request
            .header("x-demo-user", "ann")
            .send()
            .await
            .expect("an answer")
            .status()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.process.id().expect("it runs").to_string();
        let done = std::process::Command::new("kill")
            .args([signal, &pid])
            .status();
        assert!(done.expect("kill runs").success());
    }
}
