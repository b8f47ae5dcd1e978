//! A client that sends keys.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::Value;

use crate::Server;

/// A client of one server.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Client {
    /// Speaks HTTP/1.1.
    ///
    /// # Panics
    ///
    /// The client cannot be built.
    #[must_use]
    pub fn new(server: &Server) -> Self {
        let http = builder().build().expect("a client");
        Self {
            http,
            base: format!("http://{}", server.address),
        }
    }

    /// Speaks HTTP/2.
    ///
    /// # Panics
    ///
    /// The client cannot be built.
    #[must_use]
    pub fn http2(server: &Server) -> Self {
        let http = builder().http2_prior_knowledge();
        Self {
            http: http.build().expect("a client"),
            base: format!("http://{}", server.address),
        }
    }

    /// Begins a request of the owner `ann`.
    pub fn request(&self, method: http::Method, path: &str) -> reqwest::RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.base))
            .header("x-owner", "ann")
    }

    /// Posts JSON with a key.
    ///
    /// # Panics
    ///
    /// There is no answer.
    pub async fn post(&self, path: &str, key: &str, body: &(impl Serialize + Sync)) -> Answer {
        let request = self
            .request(http::Method::POST, path)
            .header("idempotency-key", key);
        Answer::of(request.json(body)).await
    }
}

impl Answer {
    /// Sends a request and reads its whole answer.
    ///
    /// # Panics
    ///
    /// There is none.
    pub async fn of(request: reqwest::RequestBuilder) -> Self {
        Self::try_of(request).await.expect("an answer")
    }

    /// Sends a request and reads its whole answer, if there is one.
    ///
    /// # Errors
    ///
    /// The connection broke off.
    pub async fn try_of(request: reqwest::RequestBuilder) -> reqwest::Result<Self> {
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(Self {
            status,
            headers,
            body: response.bytes().await?,
        })
    }

    /// Whether it bears the mark of a replay.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|value| value == "true")
    }

    /// The slug of a problem's `type`.
    ///
    /// # Panics
    ///
    /// It is no problem.
    #[must_use]
    pub fn problem(&self) -> String {
        assert_eq!(
            self.headers["content-type"], "application/problem+json",
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        let slug = problem["type"].as_str().and_then(|uri| uri.split_once('#'));
        slug.expect("a type with a fragment").1.to_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// It is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

fn builder() -> reqwest::ClientBuilder {
    // What the server says, and nothing that a proxy or a redirect makes of it.
    reqwest::Client::builder()
        .timeout(Duration::from_secs(60))
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
}
