//! What was counted, and what it proves.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use reqwest::StatusCode;

#[derive(Default)]
pub(super) struct Tally {
    arrivals: AtomicU64,
    made: AtomicU64,
    replays: AtomicU64,
    conflicts: AtomicU64,
    busy: AtomicU64,
    others: AtomicU64,
    hang_ups: AtomicU64,
    unanswered: AtomicU64,
    take_overs: AtomicU64,
    kills: AtomicU32,
}

impl Tally {
    pub(super) fn arrived(&self) {
        self.arrivals.fetch_add(1, Relaxed);
    }

    pub(super) fn made(&self, replay: bool) {
        if replay { &self.replays } else { &self.made }.fetch_add(1, Relaxed);
    }

    pub(super) fn conflict(&self) {
        self.conflicts.fetch_add(1, Relaxed);
    }

    pub(super) fn other(&self, status: StatusCode) {
        let busy = status == StatusCode::SERVICE_UNAVAILABLE;
        if busy { &self.busy } else { &self.others }.fetch_add(1, Relaxed);
    }

    pub(super) fn hung_up(&self) {
        self.hang_ups.fetch_add(1, Relaxed);
    }

    pub(super) fn unanswered(&self) {
        self.unanswered.fetch_add(1, Relaxed);
    }

    pub(super) fn taken_over(&self) {
        self.take_overs.fetch_add(1, Relaxed);
    }

    pub(super) fn killed(&self) {
        self.kills.fetch_add(1, Relaxed);
    }

    pub(super) fn kills(&self) -> u32 {
        self.kills.load(Relaxed)
    }

    pub(super) fn print(&self, posts: u64, findings: &Findings, took: Duration) {
        let rows = [
            ("posts", posts),
            ("arrivals", self.arrivals.load(Relaxed)),
            ("  made, and told so", self.made.load(Relaxed)),
            ("  replays", self.replays.load(Relaxed)),
            ("  conflicts (409, retried)", self.conflicts.load(Relaxed)),
            ("  busy (503, retried)", self.busy.load(Relaxed)),
            ("  other answers", self.others.load(Relaxed)),
            ("  clients that hung up", self.hang_ups.load(Relaxed)),
            ("  connections that broke", self.unanswered.load(Relaxed)),
            ("service killed", self.kills.load(Relaxed).into()),
            ("claims taken over", self.take_overs.load(Relaxed)),
            ("duplicates", findings.duplicates),
            ("lost", findings.lost),
            ("stuck", findings.stuck),
        ];
        println!();
        for (what, count) in rows {
            println!("{what:<28}{count:>8}");
        }
        println!("{:<28}{:>7.1}s", "took", took.as_secs_f64());
    }
}

/// The title of a post, by which it is found again.
pub(super) fn title(post: u64) -> String {
    format!("post {post}")
}

/// Where the promise does not hold.
pub(super) struct Findings {
    /// Posts that are there more than once, or of which clients were told different ids.
    duplicates: u64,
    /// Posts of which a client was told that they were made, and which are not there.
    lost: u64,
    /// Posts of which a client did not learn in time what became of them.
    stuck: u64,
}

impl Findings {
    /// Compares what each device was told with what is stored.
    pub(super) fn of(
        answers: &HashMap<u64, Vec<Option<String>>>,
        stored: &HashMap<String, Vec<String>>,
    ) -> Self {
        let mut findings = Self {
            duplicates: 0,
            lost: 0,
            stuck: 0,
        };
        for (post, told) in answers {
            let ids: HashSet<&String> = told.iter().flatten().collect();
            let none = Vec::new();
            let stored = stored.get(&title(*post)).unwrap_or(&none);
            findings.duplicates += u64::from(stored.len() > 1 || ids.len() > 1);
            findings.lost += u64::from(ids.iter().any(|id| !stored.contains(id)));
            findings.stuck += u64::from(told.iter().any(Option::is_none));
        }
        findings
    }

    pub(super) fn is_clean(&self) -> bool {
        self.duplicates + self.lost + self.stuck == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(told: &[Option<&str>], stored: &[&str]) -> (u64, u64, u64) {
        let told = told.iter().map(|id| id.map(str::to_owned)).collect();
        let stored = stored.iter().map(|id| (*id).to_owned()).collect();
        let stored = HashMap::from([(title(1), stored)]);
        let found = Findings::of(&HashMap::from([(1, told)]), &stored);
        (found.duplicates, found.lost, found.stuck)
    }

    /// The checker sees what it is there to see.
    #[test]
    fn findings_are_found() {
        assert_eq!(findings(&[Some("a"), Some("a")], &["a"]), (0, 0, 0));
        assert_eq!(findings(&[Some("a")], &["a", "b"]), (1, 0, 0));
        assert_eq!(findings(&[Some("a"), Some("b")], &["a"]), (1, 1, 0));
        assert_eq!(findings(&[Some("a")], &[]), (0, 1, 0));
        assert_eq!(findings(&[Some("a"), None], &["a"]), (0, 0, 1));
    }
}
