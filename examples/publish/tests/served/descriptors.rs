//! The service has no file descriptors left.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use test_support::{postgres_database, sqlite_database};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::service::Service;

/// How many descriptors the service may have: enough for these clients and a full pool.
const DESCRIPTORS: usize = 96;

/// Clients that are connected when the descriptors run out, and those that come then.
const CONNECTED: usize = 8;
const LATE: usize = 16;

/// A client of its own, with a connection of its own.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    fn new(service: &Service) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(1));
        Self {
            http: http.build().expect("a client"),
            base: service.base.clone(),
        }
    }

    /// Connects, and keeps the connection.
    async fn connect(&self) {
        let list = self.http.get(format!("{}/posts", self.base));
        let answer = list.header("x-demo-user", "ann").send().await;
        answer.expect("an answer").bytes().await.expect("a list");
    }

    /// Sends a post once. No answer is none.
    async fn post(&self, key: &str) -> Option<StatusCode> {
        let draft = json!({"title": key, "body": "b", "delay_ms": 20});
        let post = self.http.post(format!("{}/posts", self.base));
        let post = post
            .header("x-demo-user", "ann")
            .header("idempotency-key", key);
        let answer = post.json(&draft).send().await.ok()?;
        let status = answer.status();
        let (created, retryable) = (
            status == StatusCode::CREATED,
            [409, 500, 503].contains(&status.as_u16()),
        );
        assert!(created || retryable, "{key}: {status}");
        Some(status)
    }

    /// Sends a post until it is made. Returns how often it was not.
    async fn post_until_made(self, key: String) -> usize {
        let mut failures = 0;
        while self.post(&key).await != Some(StatusCode::CREATED) {
            failures += 1;
            sleep(Duration::from_millis(50)).await;
        }
        failures
    }
}

/// R50, R57: a service whose file descriptors are used up by connections neither dies nor doubles
/// anything, and when there are some again every post is made once.
async fn out_of_descriptors(database_url: &str) {
    let mut service = Service::start_with_descriptors(database_url, DESCRIPTORS).await;
    let connected: Vec<Client> = (0..CONNECTED).map(|_| Client::new(&service)).collect();
    for client in &connected {
        client.connect().await;
    }
    let process = service.process.id().expect("it runs");
    let open = || {
        let open = std::fs::read_dir(format!("/proc/{process}/fd"));
        open.expect("Linux tells").count()
    };
    let address = service.base.trim_start_matches("http://");
    let mut idle = Vec::new();
    while open() < DESCRIPTORS {
        idle.push(
            TcpStream::connect(address)
                .await
                .expect("a place in the line"),
        );
        // No event tells that it was accepted.
        sleep(Duration::from_millis(2)).await;
    }

    let mut clients = JoinSet::new();
    for (number, client) in connected.into_iter().enumerate() {
        clients.spawn(client.post_until_made(format!("connected-{number}")));
    }
    for number in 0..LATE {
        clients.spawn(Client::new(&service).post_until_made(format!("late-{number}")));
    }
    // Long enough for most to give up once.
    sleep(Duration::from_secs(2)).await;
    drop(idle);

    let all = timeout(Duration::from_secs(60), clients.join_all()).await;
    let failures: usize = all.expect("the service answers again").iter().sum();
    assert!(failures > LATE, "{failures}: they were out");
    assert!(
        service.process.try_wait().expect("its state").is_none(),
        "the same one"
    );
    let posts = service.posts().await;
    let title = |post: &Value| post["title"].as_str().map(ToOwned::to_owned);
    let titles: BTreeSet<_> = posts.iter().filter_map(title).collect();
    assert_eq!(
        (posts.len(), titles.len()),
        (CONNECTED + LATE, CONNECTED + LATE)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    let database = sqlite_database();
    out_of_descriptors(&database.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let database = postgres_database().await;
    out_of_descriptors(database.url()).await;
    database.assert_none_idle_in_transaction().await;
}
