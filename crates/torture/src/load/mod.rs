//! Many clients that retry as real ones do.

mod device;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub(crate) use self::device::{Device, Item, PATIENCE, Site, Temper};
use crate::Outcome;
use crate::history::Answer;
use crate::server::app::Draft;

/// How many keys are on their way at once.
const AT_ONCE: usize = 32;

/// What becomes of one key. Drawn at its start.
#[derive(Clone)]
struct Story {
    site: Arc<Site>,
    key: String,
    draft: Draft,
    dice: fastrand::Rng,
}

/// Stories that were begun, to be told to their ends.
pub(crate) struct Load {
    site: Arc<Site>,
    stories: Vec<Story>,
    running: JoinSet<()>,
}

impl Load {
    /// Begins stories until a time.
    pub(crate) async fn begin(site: Arc<Site>, mut dice: fastrand::Rng, until: Instant) -> Self {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut load = Self {
            site,
            stories: Vec::new(),
            running: JoinSet::new(),
        };
        loop {
            let place = Arc::clone(&places).acquire_owned();
            let Ok(Ok(place)) = tokio::time::timeout_at(until, place).await else {
                return load;
            };
            let story = Story::new(&load.site, load.stories.len(), &mut dice);
            load.stories.push(story.clone());
            load.running.spawn(async move {
                story.tell().await;
                drop(place);
            });
        }
    }

    /// Waits until every client has its answer or has given up, and then asks once more for every
    /// key: a client that comes back weeks later. Returns the number of keys.
    pub(crate) async fn finish(mut self) -> Outcome<usize> {
        while let Some(told) = self.running.join_next().await {
            told?;
        }
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut asking = JoinSet::new();
        let keys = self.stories.len();
        for story in self.stories {
            let places = Arc::clone(&places);
            asking.spawn(async move {
                let _place = places.acquire().await;
                story.ask(Temper::Patient, story.dice.clone()).await
            });
        }
        while let Some(asked) = asking.join_next().await {
            asked?;
        }
        Ok(keys)
    }
}

impl Story {
    fn new(site: &Arc<Site>, number: usize, dice: &mut fastrand::Rng) -> Self {
        let mut dice = dice.fork();
        let key = format!("key-{number}");
        let draft = Draft {
            key: key.clone(),
            text: format!("text of {number}"),
            linger_ms: match dice.u32(..8) {
                0 => dice.i64(60..300),
                _ => 0,
            },
        };
        Self {
            site: Arc::clone(site),
            key,
            draft,
            dice,
        }
    }

    async fn tell(mut self) {
        let mut devices = JoinSet::new();
        let count = match self.dice.u32(..10) {
            0..6 => 1,
            6..9 => 2,
            _ => 4,
        };
        for _ in 0..count {
            let (story, mut dice) = (self.clone(), self.dice.fork());
            devices.spawn(async move {
                sleep(Duration::from_millis(dice.u64(..3) * 40)).await;
                story.ask(Temper::Whimsical, dice).await
            });
        }
        if self.dice.u32(..6) == 0 {
            let (mut story, mut dice) = (self.clone(), self.dice.fork());
            story.draft.text = format!("another {}", story.draft.text);
            devices.spawn(async move {
                sleep(Duration::from_millis(dice.u64(..400))).await;
                story.ask(Temper::Whimsical, dice).await;
                None
            });
        }
        let mut made = None;
        while let Some(answer) = devices.join_next().await {
            made = made.or(answer.ok().flatten().and_then(|answer| answer.names));
        }
        if let Some(id) = made.filter(|_| self.dice.u32(..5) == 0) {
            self.remove(id).await;
        }
        if self.dice.u32(..3) == 0 {
            sleep(Duration::from_millis(self.dice.u64(..1_500))).await;
            let dice = self.dice.fork();
            self.ask(Temper::Whimsical, dice).await;
        }
    }

    /// Sends the key's request until there is a final answer.
    async fn ask(&self, temper: Temper, dice: fastrand::Rng) -> Option<Answer> {
        let device = Device {
            site: Arc::clone(&self.site),
            key: self.key.clone(),
            item: Item::Make(self.draft.clone()),
            server: None,
            temper,
            dice,
        };
        device.send_until_final().await
    }

    /// Removes what was made, with one or two devices, while another may still ask for it.
    async fn remove(&mut self, id: String) {
        let mut devices = JoinSet::new();
        for _ in 0..self.dice.u32(1..=2) {
            let device = Device {
                site: Arc::clone(&self.site),
                key: format!("remove-{}", self.key),
                item: Item::Remove {
                    id: id.clone(),
                    of: self.key.clone(),
                },
                server: None,
                temper: Temper::Whimsical,
                dice: self.dice.fork(),
            };
            devices.spawn(device.send_until_final());
        }
        if self.dice.bool() {
            let dice = self.dice.fork();
            self.ask(Temper::Whimsical, dice).await;
        }
        devices.join_all().await;
        let dice = self.dice.fork();
        self.ask(Temper::Whimsical, dice).await;
    }
}
