//! A round: a fresh system, load and faults, calm, and the proof.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::Outcome;
use crate::faults::{self, Counts};
use crate::history::{self, History, Violation};
use crate::load::{Load, Site};
use crate::system::database::{Engine, Isolation};
use crate::system::{Manner, System};

/// What a round is about.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) engine: Engine,
    pub(crate) isolation: Isolation,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
}

/// What came of it.
pub(crate) struct Round {
    pub(crate) keys: usize,
    pub(crate) history: History,
    pub(crate) answers: HashMap<&'static str, u64>,
    pub(crate) longest_pause: Duration,
    /// How many acknowledged effects were lost, where the database does so.
    pub(crate) lost: Option<usize>,
    pub(crate) faults: Counts,
    pub(crate) kills_at_points: u64,
    pub(crate) events: [(&'static str, u64); 4],
    pub(crate) violations: Vec<Violation>,
    /// What clients and servers said of each key that has a violation.
    pub(crate) evidence: BTreeMap<String, Vec<String>>,
    pub(crate) took: Duration,
}

pub(crate) async fn run(setup: &Setup) -> Outcome<Round> {
    let began = Instant::now();
    let mut dice = fastrand::Rng::with_seed(setup.seed);
    let system = System::start(
        setup.engine,
        setup.isolation,
        manners(setup.engine, &mut dice),
        began,
    )
    .await?;
    let system = Arc::new(system);
    let servers = system
        .members
        .iter()
        .map(|member| format!("http://{}", member.address))
        .collect();
    let site = Arc::new(Site::new(servers, began)?);

    let until = Instant::now() + setup.time;
    let progress = show_progress(Arc::clone(&site), until)?;
    let (load, faults) = tokio::join!(
        Load::begin(Arc::clone(&site), dice.fork(), until.into()),
        faults::rage(&system, dice.fork(), until.into()),
    );
    let faults = faults?;
    system.calm().await;
    site.faults_have_ended();
    let keys = load.finish().await?;
    progress.abort();
    // Ended by the abort: it is what was asked for.
    let _ = progress.await;

    let tables = system.database.read_when_quiet().await?;
    let mut history = site.history();
    let answers = history::tally(&history.calls);
    let longest_pause = history.longest_pause();
    let lost_until = system.database.lost_until().await;
    let lost =
        lost_until.map(|time| history.forget(time.saturating_duration_since(began), &tables));
    let violations = history::check(&history, &tables);
    let keys_at_fault = violations.iter().map(|violation| &violation.key);
    let evidence = keys_at_fault
        .map(|key| (key.clone(), evidence(key, &history, &system)))
        .collect();
    let (kills_at_points, events) = (system.log.kills_at_points(), system.log.events());
    let system = Arc::into_inner(system).ok_or("a fault outlives its round")?;
    system.stop().await?;
    Ok(Round {
        keys,
        history,
        answers,
        longest_pause,
        lost,
        faults,
        kills_at_points,
        events,
        violations,
        evidence,
        took: began.elapsed(),
    })
}

/// Three servers on PostgreSQL, two on SQLite, which need not be configured alike.
fn manners(engine: Engine, dice: &mut fastrand::Rng) -> Vec<Manner> {
    let servers = match engine {
        Engine::Sqlite => 2,
        _ => 3,
    };
    (0..servers)
        .map(|_| Manner {
            renew: dice.bool(),
            wait_ms: [0, 0, 700][dice.usize(..3)],
            triggers: faults::triggers(dice.fork()),
        })
        .collect()
}

/// What clients and servers said of a key.
fn evidence(key: &str, history: &History, system: &System) -> Vec<String> {
    let remover = format!("remove-{key}");
    let calls = history.calls.iter();
    let calls = calls.filter(|call| call.key == key || call.key == remover);
    let mut evidence: Vec<String> = calls.map(ToString::to_string).collect();
    evidence.extend(system.log.of_key(key));
    evidence.sort();
    evidence
}

/// A line that says how far it is.
fn show_progress(site: Arc<Site>, until: Instant) -> Outcome<JoinHandle<()>> {
    let began = Instant::now();
    let total = until.saturating_duration_since(began).as_secs();
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} s, {msg}")?;
    let bar = ProgressBar::new(total).with_style(style);
    let mut tick = interval(Duration::from_millis(250));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    Ok(tokio::spawn(async move {
        // Clears the line when it is dropped, so that the table comes at its place.
        let bar = Cleared(bar);
        loop {
            tick.tick().await;
            bar.0.set_position(began.elapsed().as_secs().min(total));
            let state = if Instant::now() < until {
                ""
            } else {
                ", waiting for the rest"
            };
            bar.0.set_message(format!("{} calls{state}", site.calls()));
        }
    }))
}

struct Cleared(ProgressBar);

impl Drop for Cleared {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
