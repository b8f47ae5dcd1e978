//! What the servers say, and what it tells of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tower_idempotency::IdempotencyKey;

use crate::server::points::LAST_WORDS;

/// The lines of all servers of a round.
pub(crate) struct Log {
    began: Instant,
    lines: Mutex<Vec<Line>>,
}

struct Line {
    at: Duration,
    server: usize,
    text: String,
}

/// What the layer says when things were close.
const EVENTS: [(&str, &str); 4] = [
    ("take-overs", "stale claim taken over"),
    ("claims lost", "claim lost"),
    ("commits in doubt", "commit in doubt resolved"),
    ("transactions lost", "transaction lost"),
];

impl Log {
    pub(crate) fn new(began: Instant) -> Self {
        let lines = Mutex::default();
        Self { began, lines }
    }

    pub(crate) fn push(&self, server: usize, text: String) {
        let at = self.began.elapsed();
        self.lines().push(Line { at, server, text });
    }

    /// The last thing that a server said.
    pub(crate) fn last_of(&self, server: usize) -> Option<String> {
        let lines = self.lines();
        let line = lines.iter().rfind(|line| line.server == server)?;
        Some(line.text.clone())
    }

    /// How many servers have killed themselves.
    pub(crate) fn kills_at_points(&self) -> u64 {
        self.count(LAST_WORDS)
    }

    /// How often things were close, by name.
    pub(crate) fn events(&self) -> [(&'static str, u64); 4] {
        EVENTS.map(|(name, words)| (name, self.count(words)))
    }

    fn count(&self, words: &str) -> u64 {
        let lines = self.lines();
        let count = lines
            .iter()
            .filter(|line| line.text.contains(words))
            .count();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// What was said of a key, of which the log has a hash only.
    pub(crate) fn of_key(&self, key: &str) -> Vec<String> {
        let Ok(key) = IdempotencyKey::from_text(key) else {
            return Vec::new();
        };
        let hash = key.short_hash();
        self.lines()
            .iter()
            .filter(|line| line.text.contains(&hash))
            .map(|Line { at, server, text }| {
                format!("{:9.3} s, server {server}: {text}", at.as_secs_f64())
            })
            .collect()
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        // A panic cannot leave a line half-written.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
