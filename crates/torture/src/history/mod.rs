//! What clients did and were told, and what was there in the end.

mod check;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

pub(crate) use check::{Kind, Violation, check};

/// One call, from the moment it was sent. Times are since the start of the round.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) key: String,
    pub(crate) request: Request,
    pub(crate) server: usize,
    pub(crate) started: Duration,
    pub(crate) ended: Duration,
    pub(crate) outcome: Outcome,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Make {
        body: String,
    },
    /// Removes what the key `of` made.
    Remove {
        id: String,
        of: String,
    },
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answer(Answer),
    /// The client did not wait.
    HungUp,
    /// The connection broke.
    Broken,
    /// It no longer counts.
    Forgotten,
}

/// An answer, read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether it bears the mark of a replay.
    pub(crate) replayed: bool,
    /// Those that are kept.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// The kind of problem, where the layer answered.
    pub(crate) problem: Option<String>,
    /// The effect that a 2xx speaks of.
    pub(crate) names: Option<String>,
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn is_problem(&self, kind: &str) -> bool {
        self.problem.as_deref() == Some(kind)
    }

    /// Whether a client stops here.
    pub(crate) fn is_final(&self) -> bool {
        match self.status {
            500.. | 422 => false,
            409 => !self.is_problem("in-progress"),
            _ => true,
        }
    }
}

/// A client's wait for a final answer, over all its calls.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) key: String,
    pub(crate) began: Duration,
    /// `None`: it gave up.
    pub(crate) ended: Option<Duration>,
}

/// A round, as the clients saw it.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) calls: Vec<Call>,
    pub(crate) waits: Vec<Wait>,
    /// When the last fault had ended.
    pub(crate) faults_ended: Duration,
    /// How long after that an answer may take.
    pub(crate) bound: Duration,
    /// Effects that a database lost which may lose what it acknowledged.
    pub(crate) gone: HashSet<String>,
}

impl History {
    /// Makes the clients forget what they were told until a time, because the database has forgotten
    /// some of it, too. Returns how many effects a 2xx spoke of are gone.
    pub(crate) fn forget(&mut self, until: Duration, tables: &Tables) -> usize {
        let effects: HashSet<&str> = tables.effects.iter().map(|effect| &*effect.id).collect();
        for call in self.calls.iter_mut().filter(|call| call.started < until) {
            if let Outcome::Answer(answer) = &call.outcome
                && answer.is_success()
                && let Some(id) = &answer.names
                && !effects.contains(&**id)
            {
                self.gone.insert(id.clone());
            }
            call.outcome = Outcome::Forgotten;
        }
        self.gone.len()
    }

    /// The longest time without any 2xx, until the last fault had ended.
    pub(crate) fn longest_pause(&self) -> Duration {
        let answered = self.calls.iter().filter(|call| match &call.outcome {
            Outcome::Answer(answer) => answer.is_success(),
            Outcome::HungUp | Outcome::Broken | Outcome::Forgotten => false,
        });
        let mut times: Vec<Duration> = answered.map(|call| call.ended).collect();
        times.retain(|time| *time <= self.faults_ended);
        times.sort_unstable();
        let pauses = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        pauses.max().unwrap_or_default()
    }
}

/// What is in the tables once nothing runs any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    /// Those that were removed, too.
    pub(crate) effects: Vec<Effect>,
    pub(crate) records: Vec<RecordRow>,
    /// What the handlers' second writes add up to.
    pub(crate) tally: i64,
    /// Connections that are idle in transaction.
    pub(crate) idle: i64,
}

/// A committed effect.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct Effect {
    pub(crate) id: String,
    #[sqlx(rename = "made_by")]
    pub(crate) key: String,
    pub(crate) body: String,
    /// The key of the request that removed it.
    pub(crate) buried_by: Option<String>,
}

/// The layer's record of a key.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct RecordRow {
    #[sqlx(rename = "made_by")]
    pub(crate) key: String,
    pub(crate) state: String,
    pub(crate) resource_ref: Option<String>,
}

/// How many answers there were of each kind.
pub(crate) fn tally(calls: &[Call]) -> HashMap<&'static str, u64> {
    let mut counts = HashMap::new();
    for call in calls {
        *counts.entry(call.outcome.kind()).or_default() += 1;
    }
    counts
}

impl Outcome {
    /// In a word or two, for the table.
    fn kind(&self) -> &'static str {
        let answer = match self {
            Self::HungUp => return "clients that hung up",
            Self::Broken => return "connections that broke",
            Self::Forgotten => return "forgotten",
            Self::Answer(answer) => answer,
        };
        match answer.status {
            200..300 if answer.replayed => "2xx, replayed",
            200..300 => "2xx, first",
            404 => "404 of the handler",
            409 if answer.is_problem("in-progress") => "409 in progress",
            409 => "409 key reused",
            410 => "410 gone",
            422 => "422 of the handler",
            503 if answer.is_problem("commit-unknown") => "503 commit unknown",
            503 if answer.is_problem("conflict-retry") => "503 conflict",
            503 => "503 store unavailable or busy",
            500 if answer.problem.is_none() => "500 of the handler",
            _ => "others",
        }
    }
}

/// Every kind of answer, in the order of the table.
pub(crate) const KINDS: [&str; 13] = [
    "2xx, first",
    "2xx, replayed",
    "404 of the handler",
    "409 in progress",
    "409 key reused",
    "410 gone",
    "422 of the handler",
    "500 of the handler",
    "503 store unavailable or busy",
    "503 conflict",
    "503 commit unknown",
    "clients that hung up",
    "connections that broke",
];

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (started, ended) = (self.started.as_secs_f64(), self.ended.as_secs_f64());
        write!(
            f,
            "{started:9.3} to {ended:9.3} s, server {}: ",
            self.server
        )?;
        match &self.request {
            Request::Make { body } => write!(f, "make {body:?}")?,
            Request::Remove { id, .. } => write!(f, "remove {id}")?,
        }
        match &self.outcome {
            Outcome::HungUp => f.write_str(" -> hung up"),
            Outcome::Broken => f.write_str(" -> broken"),
            Outcome::Forgotten => f.write_str(" -> forgotten"),
            Outcome::Answer(answer) => {
                write!(f, " -> {}", answer.status)?;
                if answer.replayed {
                    f.write_str(", replayed")?;
                }
                if let Some(problem) = &answer.problem {
                    write!(f, ", {problem}")?;
                } else if !answer.body.is_empty() {
                    write!(f, ", {}", String::from_utf8_lossy(&answer.body))?;
                }
                Ok(())
            }
        }
    }
}
