//! Four processes on one database, behind a balancer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use test_support::Proxy;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Outcome;
use crate::history::{self, Answer};
use crate::load::{Device, Item, PATIENCE, Site, Temper};
use crate::server::app::{Draft, Whim};
use crate::system::database::{Engine, Isolation};
use crate::system::{Manner, System};

#[derive(Args)]
pub(crate) struct Options {
    /// The database.
    #[arg(long)]
    database: Engine,
}

const PROCESSES: usize = 4;

/// Keys that arrive at all processes at once.
const KEYS: usize = 20;

/// How long a process makes arrivals wait for another's result.
const WAIT: Duration = Duration::from_secs(3);

/// The longest wait for a claim to be seen.
const SOON: Duration = Duration::from_secs(10);

pub(crate) async fn run(options: &Options) -> Outcome {
    let began = Instant::now();
    let manners = (0..PROCESSES).map(|_| Manner {
        renew: false,
        wait_ms: u64::try_from(WAIT.as_millis()).unwrap_or(u64::MAX),
        triggers: Box::new(|| None),
    });
    let isolation = Isolation::ReadCommitted;
    let system = System::start(options.database, isolation, manners.collect(), began).await?;
    let addresses: Vec<_> = system.members.iter().map(|member| member.address).collect();
    let balancer = Proxy::balance(&addresses).await;
    // The balancer, and the first process by itself.
    let servers = [balancer.address(), addresses[0]].map(|address| format!("http://{address}"));
    let site = Arc::new(Site::balanced(servers.to_vec(), began)?);

    let mut runs = HashMap::new();
    for number in 0..KEYS {
        let winner = at_all_at_once(&site, &format!("key-{number}")).await?;
        *runs.entry(winner).or_insert(0) += 1;
    }
    println!(
        "{KEYS} keys at {PROCESSES} processes at once: each was run by one, of {}, and replayed by the others",
        runs.len()
    );

    let took = let_one_die(&system, &site).await?;
    println!("killed while it ran a key: another took over after {took:.1} s");

    site.faults_have_ended();
    let tables = system.database.read_when_quiet().await?;
    let violations = history::check(&site.history(), &tables);
    let effects = tables.effects.len();
    system.stop().await?;
    match &violations[..] {
        [] if effects == KEYS + 1 => Ok(()),
        violations => Err(format!("{effects} effects, {violations:?}").into()),
    }
}

fn device(site: &Arc<Site>, key: &str, server: usize) -> Device {
    Device {
        site: Arc::clone(site),
        key: key.to_owned(),
        item: Item::Make(Draft {
            key: key.to_owned(),
            text: "text".to_owned(),
            linger_ms: 0,
        }),
        server: Some(server),
        temper: Temper::Patient,
        dice: fastrand::Rng::new(),
    }
}

/// Sends a key to each process at once: one of them runs it while the others wait, and all give the
/// same answer. Returns the process that ran it.
async fn at_all_at_once(site: &Arc<Site>, key: &str) -> Outcome<u64> {
    let mut arrivals = JoinSet::new();
    for _ in 0..PROCESSES {
        let mut device = device(site, key, 0);
        let whim = Whim {
            think_ms: 200,
            ..Whim::default()
        };
        arrivals.spawn(async move { device.call(&whim, PATIENCE).await });
    }
    let mut answers: Vec<Answer> = Vec::new();
    while let Some(arrival) = arrivals.join_next().await {
        match arrival? {
            history::Outcome::Answer(answer) => answers.push(answer),
            other => return Err(format!("{key}: {other:?}").into()),
        }
    }
    let bodies: HashSet<_> = answers.iter().map(|answer| &answer.body).collect();
    let firsts = answers.iter().filter(|answer| !answer.replayed).count();
    if firsts != 1 || bodies.len() != 1 || answers.iter().any(|answer| answer.status != 201) {
        return Err(format!("{key}: {answers:?}").into());
    }
    let made: serde_json::Value = serde_json::from_slice(&answers[0].body)?;
    made["server"].as_u64().ok_or_else(|| "no process".into())
}

/// Kills the first process while it runs a key that is asked for at the others, too. Returns how many
/// seconds later there was an answer.
async fn let_one_die(system: &System, site: &Arc<Site>) -> Outcome<f64> {
    let key = "dies";
    let mut first = device(site, key, 1);
    let slow = Whim {
        think_ms: 60_000,
        ..Whim::default()
    };
    let running = tokio::spawn(async move { first.call(&slow, PATIENCE).await });
    let deadline = Instant::now() + SOON;
    while system.database.claimed().await? == 0 {
        if Instant::now() >= deadline {
            return Err("nothing was claimed".into());
        }
        sleep(Duration::from_millis(5)).await;
    }
    let killed = Instant::now();
    system.members[0].kill().await;
    running.await?;
    let mut others = JoinSet::new();
    for _ in 0..PROCESSES {
        others.spawn(device(site, key, 0).send_until_final());
    }
    let mut firsts = 0;
    let mut took = None;
    while let Some(other) = others.join_next().await {
        let answer = other?.ok_or("no final answer")?;
        took.get_or_insert_with(|| killed.elapsed().as_secs_f64());
        if answer.status != 201 {
            return Err(format!("{key}: {answer:?}").into());
        }
        firsts += usize::from(!answer.replayed);
    }
    let [(_, take_overs), ..] = system.log.events();
    match (firsts, take_overs, took) {
        (1, 1, Some(took)) => Ok(took),
        _ => Err(format!("{firsts} ran it, {take_overs} took over").into()),
    }
}
