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
pub enum Case {
    /// A key that nobody has sent.
    NewKey,
    /// A key that is completed.
    Replay,
    /// A key whose handler has not ended.
    InProgress,
}

impl Case {
    /// As it is called in the table.
    #[must_use]
    pub fn title(self) -> &'static str {
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
pub enum Way {
    /// As calls of the service.
    Call(Router),
    /// Over a socket of this machine.
    Http(SocketAddr),
}

/// An application on a socket. Stopped when it is dropped.
#[derive(Debug)]
pub struct Served {
    /// Where it listens.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Served {
    /// Serves an application on a free port.
    pub async fn start(app: Router) -> Self {
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
                // It may not know yet that the last answer has ended.
                sender.ready().await.expect("a connection");
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
pub struct Load {
    way: Way,
    case: Case,
    body: Bytes,
    has_sessions: bool,
    clients: Vec<Client>,
    /// Requests that wait for ever.
    waiting: JoinSet<()>,
}

/// Who sends one request after the other.
#[derive(Debug, Clone)]
struct Client {
    /// What it replays, or meets in progress.
    key: String,
    /// Its session, where the application has sessions.
    cookie: Option<HeaderValue>,
    /// How each replay begins. A handler that ran once more would begin with another id.
    replay: Bytes,
}

/// How much of an answer is compared.
const BEGIN: usize = 64;

fn begin(answer: &Response<Bytes>) -> Bytes {
    answer.body().slice(..answer.body().len().min(BEGIN))
}

/// A version 4 UUID, as most clients send.
#[must_use]
pub fn fresh_key() -> String {
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
    /// So many clients, each with a key of its own and a body like this.
    #[must_use]
    pub fn new(way: Way, case: Case, clients: usize, body: Bytes) -> Self {
        let client = |_| Client {
            key: fresh_key(),
            cookie: None,
            replay: Bytes::new(),
        };
        Self {
            way,
            case,
            body,
            has_sessions: false,
            clients: (0..clients).map(client).collect(),
            waiting: JoinSet::new(),
        }
    }

    /// Lets each client have a session of its own, for an application that has them. Where keys are
    /// new, it is a new one for each turn: nobody has thousands of them in one session.
    #[must_use]
    pub fn with_sessions(mut self) -> Self {
        self.has_sessions = true;
        self
    }

    /// The keys that the clients replay.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.clients
            .iter()
            .map(|client| client.key.clone())
            .collect()
    }

    async fn log_in(&self) -> HeaderValue {
        let request = Request::post("/login").body(Full::default());
        let answer = Line::open(&self.way)
            .await
            .send(request.expect("a request"))
            .await;
        let cookie = answer.headers()[http::header::SET_COOKIE].as_bytes();
        let end = cookie.iter().position(|byte| *byte == b';');
        let cookie = &cookie[..end.unwrap_or(cookie.len())];
        HeaderValue::from_bytes(cookie).expect("a cookie")
    }

    /// Makes what the case needs.
    pub async fn prepare(&mut self) {
        if self.has_sessions && self.case != Case::NewKey {
            for index in 0..self.clients.len() {
                self.clients[index].cookie = Some(self.log_in().await);
            }
        }
        match self.case {
            Case::NewKey => {}
            Case::Replay => {
                let mut line = Line::open(&self.way).await;
                for client in &mut self.clients {
                    let request = request(&self.body, &client.key, client.cookie.as_ref(), false);
                    let answer = line.send(request).await;
                    assert_eq!(answer.status(), StatusCode::CREATED, "{answer:?}");
                    client.replay = begin(&answer);
                }
            }
            Case::InProgress => {
                for client in &self.clients {
                    let waits = request(&self.body, &client.key, client.cookie.as_ref(), true);
                    let mut line = Line::open(&self.way).await;
                    self.waiting
                        .spawn(async move { drop(line.send(waits).await) });
                }
                for client in &self.clients {
                    let mut line = Line::open(&self.way).await;
                    // Until the claim is there. The first of these may win it, and then waits.
                    loop {
                        let again = request(&self.body, &client.key, client.cookie.as_ref(), true);
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
    /// Panics where an answer is not what the case expects, or not the replay that it has to be.
    pub async fn run(&self, time: Duration) -> f64 {
        let mut clients = self.clients.clone();
        if self.has_sessions && self.case == Case::NewKey {
            for client in &mut clients {
                client.cookie = Some(self.log_in().await);
            }
        }
        let started = Instant::now();
        let end = started + time;
        let mut sending = JoinSet::new();
        for client in clients {
            let (way, case, body) = (self.way.clone(), self.case, self.body.clone());
            sending.spawn(async move {
                let mut line = Line::open(&way).await;
                let mut answered = 0_u32;
                while Instant::now() < end {
                    let fresh = (case == Case::NewKey).then(fresh_key);
                    let key = fresh.as_ref().unwrap_or(&client.key);
                    let request = request(&body, key, client.cookie.as_ref(), false);
                    let answer = line.send(request).await;
                    assert_eq!(answer.status(), case.expected(), "{answer:?}");
                    if case == Case::Replay {
                        assert_eq!(begin(&answer), client.replay);
                    }
                    answered += 1;
                }
                answered
            });
        }
        let answered: u32 = sending.join_all().await.into_iter().sum();
        f64::from(answered) / started.elapsed().as_secs_f64()
    }
}

impl Load {
    /// Sends for that long, each client one request in each `pause`, whatever the last one took.
    /// Returns the time that 99 % of the answers took at the most, in seconds.
    pub async fn paced(&self, time: Duration, pause: Duration) -> f64 {
        let started = Instant::now();
        let mut clients = JoinSet::new();
        for client in 0..self.clients.len() {
            let (way, body) = (self.way.clone(), self.body.clone());
            // Not all at once.
            let first = pause.mul_f64(client as f64 / self.clients.len() as f64);
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
pub fn request(
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
