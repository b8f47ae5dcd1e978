//! One of the devices that send a request until they know what became of it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::http::Method;
use tokio::time::{sleep, timeout};
use tower_idempotency::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};

use crate::Outcome as Done;
use crate::history::{Answer, Call, History, Outcome, Request, Wait};
use crate::server::app::{Draft, End, WHIM, Whim};

/// How long after the last fault a final answer may take.
const BOUND: Duration = Duration::from_secs(15);

/// The longest that one call may take; a connection may be held for longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The response headers that are kept and that the handlers set.
const KEPT: [&str; 3] = ["content-type", "etag", "location"];

/// What all devices of a round share.
pub(crate) struct Site {
    http: reqwest::Client,
    servers: Vec<String>,
    began: Instant,
    calls: Mutex<Vec<Call>>,
    waits: Mutex<Vec<Wait>>,
    faults_ended: OnceLock<Duration>,
}

impl Site {
    pub(crate) fn new(servers: Vec<String>, began: Instant) -> Done<Self> {
        Self::with(reqwest::Client::builder(), servers, began)
    }

    /// Behind a balancer, which gives each connection to another server: each call has one.
    pub(crate) fn balanced(servers: Vec<String>, began: Instant) -> Done<Self> {
        let http = reqwest::Client::builder().pool_max_idle_per_host(0);
        Self::with(http, servers, began)
    }

    fn with(http: reqwest::ClientBuilder, servers: Vec<String>, began: Instant) -> Done<Self> {
        Ok(Self {
            http: http.no_proxy().build()?,
            servers,
            began,
            calls: Mutex::default(),
            waits: Mutex::default(),
            faults_ended: OnceLock::new(),
        })
    }

    /// From now on every answer has to come within the bound.
    pub(crate) fn faults_have_ended(&self) {
        self.faults_ended.get_or_init(|| self.began.elapsed());
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// All that was recorded so far.
    pub(crate) fn history(&self) -> History {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        History {
            calls: std::mem::take(&mut *calls),
            waits: std::mem::take(&mut *waits),
            faults_ended: self.faults_ended.get().copied().unwrap_or_default(),
            bound: BOUND,
            gone: HashSet::new(),
        }
    }

    /// Whether a wait that began then has lasted for too long.
    fn is_hopeless(&self, began: Duration) -> bool {
        self.faults_ended.get().is_some_and(|ended| {
            // Long enough for the checker to see that it was too long.
            self.began.elapsed() > *ended.max(&began) + BOUND + PATIENCE
        })
    }
}

/// How a device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temper {
    /// Hangs up now and then, and asks for handlers that are slow or fail.
    Whimsical,
    Patient,
}

/// A device, with what it sends.
pub(crate) struct Device {
    pub(crate) site: Arc<Site>,
    pub(crate) key: String,
    pub(crate) item: Item,
    /// The server it speaks to; without one, another for each call.
    pub(crate) server: Option<usize>,
    pub(crate) temper: Temper,
    pub(crate) dice: fastrand::Rng,
}

/// What a device sends.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Make(Draft),
    /// Removes an effect, which was made with the key `of`.
    Remove {
        id: String,
        of: String,
    },
}

impl Device {
    /// Sends until the answer is final. `None`: it gave up.
    pub(crate) async fn send_until_final(mut self) -> Option<Answer> {
        let began = self.site.began.elapsed();
        let mut last = None;
        while last.is_none() && !self.site.is_hopeless(began) {
            let (whim, patience) = match self.temper {
                Temper::Patient => (Whim::default(), PATIENCE),
                Temper::Whimsical => (whim(&mut self.dice), patience(&mut self.dice)),
            };
            match self.call(&whim, patience).await {
                Outcome::Answer(answer) if answer.is_final() => last = Some(answer),
                _ => sleep(Duration::from_millis(self.dice.u64(5..150))).await,
            }
        }
        let wait = Wait {
            key: self.key,
            began,
            ended: last.as_ref().map(|_| self.site.began.elapsed()),
        };
        let waits = self.site.waits.lock();
        waits.unwrap_or_else(PoisonError::into_inner).push(wait);
        last
    }

    /// Sends once, and hangs up after a time.
    pub(crate) async fn call(&mut self, whim: &Whim, patience: Duration) -> Outcome {
        let any = self.dice.usize(..self.site.servers.len());
        let server = self.server.unwrap_or(any);
        let started = self.site.began.elapsed();
        let outcome = match timeout(patience, self.send(server, whim)).await {
            Ok(Ok(answer)) => Outcome::Answer(answer),
            Ok(Err(_)) => Outcome::Broken,
            Err(_) => Outcome::HungUp,
        };
        let call = Call {
            key: self.key.clone(),
            request: self.request(),
            server,
            started,
            ended: self.site.began.elapsed(),
            outcome: outcome.clone(),
        };
        let calls = self.site.calls.lock();
        calls.unwrap_or_else(PoisonError::into_inner).push(call);
        outcome
    }

    fn request(&self) -> Request {
        match &self.item {
            Item::Make(draft) => Request::Make {
                body: draft.text.clone(),
            },
            Item::Remove { id, of } => Request::Remove {
                id: id.clone(),
                of: of.clone(),
            },
        }
    }

    async fn send(&self, server: usize, whim: &Whim) -> Done<Answer> {
        let base = &self.site.servers[server];
        let http = &self.site.http;
        let request = match &self.item {
            Item::Make(draft) => http
                .request(Method::POST, format!("{base}/effects"))
                .json(draft),
            Item::Remove { id, .. } => http.request(Method::DELETE, format!("{base}/effects/{id}")),
        };
        let response = request
            .header(IDEMPOTENCY_KEY, &self.key)
            .header(WHIM, serde_json::to_string(whim)?)
            .send()
            .await?;
        let status = response.status().as_u16();
        let replayed = response.headers().contains_key(IDEMPOTENT_REPLAYED);
        let headers: Vec<_> = KEPT
            .iter()
            .flat_map(|name| {
                let lines = response.headers().get_all(*name).iter();
                lines.map(|line| ((*name).to_owned(), line.as_bytes().to_vec()))
            })
            .collect();
        let body = response.bytes().await?.to_vec();
        let names = match &self.item {
            Item::Make(_) => id_in_location(&headers),
            Item::Remove { id, .. } => Some(id.clone()),
        };
        Ok(Answer {
            status,
            replayed,
            problem: problem(&headers, &body),
            headers,
            body,
            names,
        })
    }
}

fn line<'a>(headers: &'a [(String, Vec<u8>)], name: &str) -> Option<&'a str> {
    let (_, line) = headers.iter().find(|(other, _)| other == name)?;
    std::str::from_utf8(line).ok()
}

fn id_in_location(headers: &[(String, Vec<u8>)]) -> Option<String> {
    let id = line(headers, "location")?.rsplit('/').next()?;
    Some(id.to_owned())
}

/// The fragment of a problem's type.
fn problem(headers: &[(String, Vec<u8>)], body: &[u8]) -> Option<String> {
    if line(headers, "content-type") != Some("application/problem+json") {
        return None;
    }
    let problem: serde_json::Value = serde_json::from_slice(body).ok()?;
    let (_, kind) = problem.get("type")?.as_str()?.rsplit_once('#')?;
    Some(kind.to_owned())
}

/// How the handler is to behave, if this call runs it.
fn whim(dice: &mut fastrand::Rng) -> Whim {
    Whim {
        think_ms: pause_ms(dice, 10),
        rest_ms: pause_ms(dice, 40),
        end: match dice.u32(..10) {
            0 => End::Refusal,
            1 => End::Failure,
            2 => End::Panic,
            _ => End::Success,
        },
    }
}

/// Mostly none, and once in so many times one that is longer than a claim lives.
fn pause_ms(dice: &mut fastrand::Rng, long_in: u32) -> u64 {
    match dice.u32(..long_in) {
        0 => dice.u64(900..1_900),
        n if n % 3 == 0 => dice.u64(1..60),
        _ => 0,
    }
}

fn patience(dice: &mut fastrand::Rng) -> Duration {
    match dice.u32(..4) {
        0 => Duration::from_millis(dice.u64(2..300)),
        _ => PATIENCE,
    }
}
