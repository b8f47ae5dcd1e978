//! A thousand posts, each sent by impatient clients, while the service is killed again and again.

mod client;
mod service;
mod tally;

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::client::Device;
use self::service::Service;
use self::tally::{Findings, Tally};

/// How many posts are on their way at once.
const AT_ONCE: usize = 48;

/// After this long without a final answer a key is stuck. Claims of the dead are stale after 2 s.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct Options {
    /// How many posts.
    #[arg(long, default_value_t = 1_000)]
    posts: u64,
    /// How often the service is killed.
    #[arg(long, default_value_t = 5)]
    kills: u32,
    /// What the clients' whims are drawn from; printed, to run the same again.
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) async fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let folder = tempfile::tempdir()?;
    let database = env::var("DATABASE_URL")
        .unwrap_or_else(|_| format!("sqlite://{}", folder.path().join("storm.db").display()));
    println!(
        "{} posts, {} kills, --seed {seed}",
        options.posts, options.kills
    );

    let tally = Arc::new(Tally::default());
    let mut service = Service::start(database, Arc::clone(&tally)).await?;
    // An owner of its own, so that a database may see more than one storm.
    let owner = format!("storm-{seed}-{}", std::process::id());
    let bar = ProgressBar::new(options.posts).with_style(ProgressStyle::with_template(
        "{bar:40} {pos}/{len} posts, {elapsed}, {msg}",
    )?);

    let started = Instant::now();
    let mut sending = JoinSet::new();
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut dice = fastrand::Rng::with_seed(seed);
    for post in 0..options.posts {
        let (places, bar) = (Arc::clone(&places), bar.clone());
        let (tally, base, owner) = (Arc::clone(&tally), service.base().to_owned(), owner.clone());
        let mut dice = dice.fork();
        sending.spawn(async move {
            let _place = places.acquire().await;
            let mut devices = JoinSet::new();
            for _ in 0..dice.u32(1..=5) {
                let device = Device::new(&base, &owner, post, dice.fork(), Arc::clone(&tally));
                devices.spawn(device.send_until_final(PATIENCE));
            }
            let answers = devices.join_all().await;
            bar.inc(1);
            (post, answers)
        });
    }

    // A kill each time that an equal part of the posts is through.
    let mut answers = HashMap::new();
    let part = options.posts / u64::from(options.kills + 1);
    while let Some(sent) = sending.join_next().await {
        let (post, ids) = sent?;
        answers.insert(post, ids);
        let killed = tally.kills();
        if killed < options.kills && answers.len() as u64 >= part * u64::from(killed + 1) {
            bar.set_message(format!("kill {} of {}", killed + 1, options.kills));
            service.kill_and_restart().await?;
        }
    }
    bar.finish_and_clear();

    let stored = stored(service.base(), &owner).await?;
    let findings = Findings::of(&answers, &stored);
    service.stop().await;
    tally.print(options.posts, &findings, started.elapsed());
    if findings.is_clean() {
        Ok(())
    } else {
        Err("the promise is broken".into())
    }
}

/// The posts that are there in the end, by their titles.
async fn stored(base: &str, owner: &str) -> Result<HashMap<String, Vec<String>>, Box<dyn Error>> {
    #[derive(Deserialize)]
    struct Stored {
        id: String,
        title: String,
    }
    let list = reqwest::Client::builder()
        .no_proxy()
        .build()?
        .get(format!("{base}/posts"));
    let list: Vec<Stored> = list
        .header("x-demo-user", owner)
        .send()
        .await?
        .json()
        .await?;
    let mut stored: HashMap<String, Vec<String>> = HashMap::new();
    for post in list {
        stored.entry(post.title).or_default().push(post.id);
    }
    Ok(stored)
}
