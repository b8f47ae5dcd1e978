//! A client that hangs up, retries and races.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::tally::Tally;

/// One of the devices that send the same post with the same key.
pub(super) struct Device {
    http: reqwest::Client,
    url: String,
    owner: String,
    post: u64,
    delay_ms: u64,
    dice: fastrand::Rng,
    tally: Arc<Tally>,
}

#[derive(Deserialize)]
struct Made {
    id: String,
}

impl Device {
    pub(super) fn new(
        base: &str,
        owner: &str,
        post: u64,
        dice: fastrand::Rng,
        tally: Arc<Tally>,
    ) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .build()
            .expect("a client can be built");
        // Every device sends the very same body, or it would be another request.
        let delay_ms = post * 7 % 60;
        Self {
            http,
            url: format!("{base}/posts"),
            owner: owner.into(),
            post,
            delay_ms,
            dice,
            tally,
        }
    }

    /// Sends until it knows what became of the post. `None`: it gave up.
    pub(super) async fn send_until_final(mut self, patience: Duration) -> Option<String> {
        let deadline = Instant::now() + patience;
        for attempt in 0.. {
            if Instant::now() >= deadline {
                break;
            }
            // Sometimes shorter than the handler takes; longer each time, or a slow machine would
            // be kept busy by those who do not wait for it.
            let longer = 1 << (attempt / 2).min(5);
            let hang_up = Duration::from_millis(self.dice.u64(10..250) * longer);
            match tokio::time::timeout(hang_up, self.send()).await {
                Ok(Some(id)) => return Some(id),
                Ok(None) => {}
                Err(_) => self.tally.hung_up(),
            }
            tokio::time::sleep(Duration::from_millis(self.dice.u64(1..60) * longer)).await;
        }
        None
    }

    async fn send(&self) -> Option<String> {
        self.tally.arrived();
        let request = self.http.post(&self.url).header("x-demo-user", &self.owner);
        let draft = json!({
            "title": super::tally::title(self.post),
            "body": "sent in a storm",
            "delay_ms": self.delay_ms,
        });
        let request = request
            .header("idempotency-key", format!("post-{}", self.post))
            .json(&draft);
        let Ok(answer) = request.send().await else {
            self.tally.unanswered();
            return None;
        };
        match answer.status() {
            StatusCode::CREATED => {
                let replay = answer.headers().contains_key("idempotent-replayed");
                let made: Made = answer.json().await.ok()?;
                self.tally.made(replay);
                Some(made.id)
            }
            StatusCode::CONFLICT => {
                self.tally.conflict();
                None
            }
            status => {
                self.tally.other(status);
                None
            }
        }
    }
}
