//! Clients in a closed loop: each sends its next request when it has the answer to the last.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt as _;

use crate::subject::WAIT;

/// What the requests of a load meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    NewKey,
    Replay,
    InProgress,
}

impl Case {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::NewKey => "new key",
            Self::Replay => "replay",
            Self::InProgress => "in progress",
        }
    }

    fn expected(self) -> StatusCode {
        match self {
            Self::NewKey | Self::Replay => StatusCode::CREATED,
            Self::InProgress => StatusCode::CONFLICT,
        }
    }
}

/// How requests reach an application.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// As calls of the service.
    Call(Router),
    /// Over a socket of this machine.
    Http(SocketAddr),
}

/// An application on a socket. Stopped when it is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("the server runs");
        });
        Self { address, task }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One client's connection.
enum Line {
    Call(Router),
    Http(SendRequest<Full<Bytes>>),
}

impl Line {
    async fn open(way: &Way) -> Self {
        match way {
            Way::Call(app) => Self::Call(app.clone()),
            Way::Http(address) => {
                let stream = TcpStream::connect(address)
                    .await
                    .expect("the server listens");
                stream.set_nodelay(true).ok();
                let (sender, connection) = http1::handshake(TokioIo::new(stream))
                    .await
                    .expect("a connection");
                tokio::spawn(connection);
                Self::Http(sender)
            }
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Response<Bytes> {
        match self {
            Self::Call(app) => {
                let called = app.clone().oneshot(request.map(Body::new)).await;
                let (head, body) = called.unwrap_or_else(|never| match never {}).into_parts();
                let body = body.collect().await.expect("a whole body").to_bytes();
                Response::from_parts(head, body)
            }
            Self::Http(sender) => {
                let answer = sender.send_request(request).await.expect("an answer");
                let (head, body) = answer.into_parts();
                let body = body.collect().await.expect("a whole body").to_bytes();
                Response::from_parts(head, body)
            }
        }
    }
}

/// Clients of one application.
#[derive(Debug)]
pub(crate) struct Load {
    way: Way,
    case: Case,
    body: Bytes,
    /// One for each client: what it replays, or meets in progress.
    keys: Vec<String>,
    cookie: Option<HeaderValue>,
    /// Requests that wait for ever.
    waiting: JoinSet<()>,
}

/// A version 4 UUID, as most clients send.
pub(crate) fn fresh_key() -> String {
    let random = fastrand::u128(..);
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        random >> 96,
        (random >> 80) & 0xffff,
        (random >> 68) & 0xfff,
        (random >> 56) & 0xfff,
        random & 0xffff_ffff_ffff
    )
}

impl Load {
    pub(crate) fn new(way: Way, case: Case, clients: usize, body: Bytes) -> Self {
        Self {
            way,
            case,
            body,
            keys: (0..clients).map(|_| fresh_key()).collect(),
            cookie: None,
            waiting: JoinSet::new(),
        }
    }

    /// The keys that the clients replay.
    pub(crate) fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Logs in, for an application that has sessions.
    pub(crate) async fn log_in(&mut self) {
        let request = Request::post("/login").body(Full::default());
        let answer = Line::open(&self.way)
            .await
            .send(request.expect("a request"))
            .await;
        let cookie = answer.headers()[http::header::SET_COOKIE].as_bytes();
        let end = cookie.iter().position(|byte| *byte == b';');
        let cookie = &cookie[..end.unwrap_or(cookie.len())];
        self.cookie = Some(HeaderValue::from_bytes(cookie).expect("a cookie"));
    }

    /// Makes what the case needs.
    pub(crate) async fn prepare(&mut self) {
        match self.case {
            Case::NewKey => {}
            Case::Replay => {
                let mut line = Line::open(&self.way).await;
                for key in &self.keys {
                    line.send(request(&self.body, key, self.cookie.as_ref(), false))
                        .await;
                }
            }
            Case::InProgress => {
                for key in &self.keys {
                    let waits = request(&self.body, key, self.cookie.as_ref(), true);
                    let mut line = Line::open(&self.way).await;
                    self.waiting
                        .spawn(async move { drop(line.send(waits).await) });
                }
                for key in &self.keys {
                    let mut line = Line::open(&self.way).await;
                    // Until the claim is there. The first of these may win it, and then waits.
                    loop {
                        let again = request(&self.body, key, self.cookie.as_ref(), true);
                        let patience = Duration::from_millis(200);
                        match tokio::time::timeout(patience, line.send(again)).await {
                            Ok(answer) if answer.status() == StatusCode::CONFLICT => break,
                            Ok(_) | Err(_) => line = Line::open(&self.way).await,
                        }
                    }
                }
            }
        }
    }

    /// Sends for that long. Returns how many requests were answered in a second.
    ///
    /// # Panics
    ///
    /// An answer is not what the case expects.
    pub(crate) async fn run(&self, time: Duration) -> f64 {
        let started = Instant::now();
        let end = started + time;
        let mut clients = JoinSet::new();
        for key in &self.keys {
            let (way, key) = (self.way.clone(), key.clone());
            let (case, body, cookie) = (self.case, self.body.clone(), self.cookie.clone());
            clients.spawn(async move {
                let mut line = Line::open(&way).await;
                let mut answered = 0_u32;
                while Instant::now() < end {
                    let fresh = (case == Case::NewKey).then(fresh_key);
                    let key = fresh.as_ref().unwrap_or(&key);
                    let answer = line.send(request(&body, key, cookie.as_ref(), false)).await;
                    assert_eq!(answer.status(), case.expected(), "{answer:?}");
                    answered += 1;
                }
                answered
            });
        }
        let answered: u32 = clients.join_all().await.into_iter().sum();
        f64::from(answered) / started.elapsed().as_secs_f64()
    }
}

impl Load {
    /// Sends for that long, each client one request in each `pause`, whatever the last one took.
    /// Returns the time that 99 % of the answers took at the most, in seconds.
    pub(crate) async fn paced(&self, time: Duration, pause: Duration) -> f64 {
        let started = Instant::now();
        let mut clients = JoinSet::new();
        for client in 0..self.keys.len() {
            let (way, body) = (self.way.clone(), self.body.clone());
            // Not all at once.
            let first = pause.mul_f64(client as f64 / self.keys.len() as f64);
            clients.spawn(async move {
                let mut line = Line::open(&way).await;
                let mut took = Vec::new();
                let mut due = started + first;
                while due < started + time {
                    tokio::time::sleep_until(due.into()).await;
                    let answer = line.send(request(&body, &fresh_key(), None, false)).await;
                    assert_eq!(answer.status(), StatusCode::CREATED, "{answer:?}");
                    // From when it was due: who waits behind a slow one is slow too.
                    took.push(due.elapsed().as_secs_f64());
                    due += pause;
                }
                took
            });
        }
        let mut took: Vec<f64> = clients.join_all().await.into_iter().flatten().collect();
        took.sort_by(f64::total_cmp);
        took[took.len() * 99 / 100]
    }
}

/// A request as a client sends it.
pub(crate) fn request(
    body: &Bytes,
    key: &str,
    cookie: Option<&HeaderValue>,
    waits: bool,
) -> Request<Full<Bytes>> {
    let mut request = Request::post("/posts")
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/json")
        .header("idempotency-key", key);
    if let Some(cookie) = cookie {
        request = request.header(COOKIE, cookie);
    }
    if waits {
        request = request.header(WAIT, "1");
    }
    request.body(Full::new(body.clone())).expect("a request")
}
