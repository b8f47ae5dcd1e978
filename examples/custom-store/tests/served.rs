//! The service on a socket.

use std::path::Path;
use std::time::Duration;

use custom_store::{RedbStore, router};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tower_idempotency::IdempotencyLayer;

/// A running service.
struct Service {
    url: String,
    http: Client,
    stop: oneshot::Sender<()>,
    stopped: JoinHandle<()>,
}

impl Service {
    async fn start(file: &Path) -> Self {
        let store = RedbStore::open(file).expect("a database");
        let idempotency = IdempotencyLayer::with_store(store);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = listener.local_addr().expect("an address");
        let (stop, stopping) = oneshot::channel();
        let stopped = tokio::spawn(async move {
            let serving = axum::serve(listener, router(&idempotency));
            let serving = serving.with_graceful_shutdown(async { drop(stopping.await) });
            serving.await.expect("the service serves");
            let left = idempotency.drain(Duration::from_secs(10)).await;
            assert_eq!(left, 0, "nothing runs any more");
        });
        let http = Client::builder().no_proxy().build().expect("a client");
        Self {
            url: format!("http://{address}/notes"),
            http,
            stop,
            stopped,
        }
    }

    /// Stops it, and closes its file.
    async fn stop(self) {
        drop(self.http);
        self.stop.send(()).expect("the service runs");
        self.stopped.await.expect("the service stops");
    }

    async fn notes(&self) -> Value {
        let response = self.http.get(&self.url).send().await.expect("an answer");
        response.json().await.expect("notes")
    }
}

async fn add(http: Client, url: String, key: &str, text: &str) -> Response {
    let request = http.post(url).header("idempotency-key", key);
    let request = request.json(&json!({ "text": text }));
    request.send().await.expect("an answer")
}

fn is_replay(response: &Response) -> bool {
    response.headers().contains_key("idempotent-replayed")
}

/// R31, R50, R51: twenty arrivals of one key at once make one note.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_arrivals_make_one_note() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start(&folder.path().join("notes.db")).await;
    let mut arrivals = JoinSet::new();
    for _ in 0..20 {
        arrivals.spawn(add(service.http.clone(), service.url.clone(), "k", "milk"));
    }
    let mut made = 0;
    for response in arrivals.join_all().await {
        match response.status() {
            StatusCode::CREATED => made += usize::from(!is_replay(&response)),
            status => assert_eq!(status, StatusCode::CONFLICT),
        }
    }
    assert_eq!(made, 1, "one arrival runs the handler");

    let retry = add(service.http.clone(), service.url.clone(), "k", "milk").await;
    assert!(is_replay(&retry));
    let note: Value = retry.json().await.expect("a note");
    assert_eq!(service.notes().await, json!([note]));
    service.stop().await;
}

/// R51, R52: what was kept is there when the file is opened anew, and other keys go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_replays() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("notes.db");
    let service = Service::start(&file).await;
    let first = add(service.http.clone(), service.url.clone(), "k", "milk").await;
    assert_eq!(first.status(), StatusCode::CREATED);
    assert!(!is_replay(&first));
    let first = first.bytes().await.expect("a body");
    service.stop().await;

    let service = Service::start(&file).await;
    let again = add(service.http.clone(), service.url.clone(), "k", "milk").await;
    assert_eq!(again.status(), StatusCode::CREATED);
    assert!(is_replay(&again));
    assert_eq!(again.bytes().await.expect("a body"), first);

    let reused = add(service.http.clone(), service.url.clone(), "k", "bread").await;
    assert_eq!(reused.status(), StatusCode::CONFLICT);
    let other = add(service.http.clone(), service.url.clone(), "l", "bread").await;
    assert_eq!(other.status(), StatusCode::CREATED);
    let notes = json!([{ "id": 1, "text": "milk" }, { "id": 2, "text": "bread" }]);
    assert_eq!(service.notes().await, notes);
    service.stop().await;
}
