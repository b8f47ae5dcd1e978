//! Each named point once: a server dies there, and another answers the retry.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use clap::ValueEnum as _;
use tokio::time::sleep;

use crate::Outcome;
use crate::history::{self, Answer};
use crate::load::{Device, Item, PATIENCE, Site, Temper};
use crate::server::app::{Draft, End, Whim};
use crate::server::points::{Point, Trigger};
use crate::system::database::{Engine, Isolation};
use crate::system::{Manner, System};

#[derive(Args)]
pub(crate) struct Options {
    /// The database.
    #[arg(long)]
    database: Engine,
}

/// The one that dies, and the one that lives.
const VICTIM: usize = 0;
const OTHER: usize = 1;

/// How long a server may take to come back, or its last words to be read.
const COME_BACK: Duration = Duration::from_secs(10);

pub(crate) async fn run(options: &Options) -> Outcome {
    let began = Instant::now();
    let mut points = Point::value_variants().iter().copied();
    let victim = manner(move || points.next().map(|point| Trigger { point, pass: 1 }));
    let other = manner(|| None);
    let isolation = Isolation::ReadCommitted;
    let system = System::start(options.database, isolation, vec![victim, other], began).await?;
    let servers = system.members.iter();
    let servers = servers.map(|member| format!("http://{}", member.address));
    let site = Arc::new(Site::new(servers.collect(), began)?);

    for (deaths, point) in (0..).zip(Point::value_variants()) {
        kill(&system, &site, *point, deaths).await?;
        let died = Instant::now();
        let answer = device(&site, *point, OTHER).send_until_final().await;
        let answer = answer.ok_or_else(|| format!("{point}: no final answer"))?;
        expect(*point, &answer)?;
        let mark = if answer.replayed { ", replayed" } else { "" };
        let took = died.elapsed().as_secs_f64();
        println!("{point:<12} {}{mark} after {took:.1} s", answer.status);
    }

    let tables = system.database.read_when_quiet().await?;
    site.faults_have_ended();
    let violations = history::check(&site.history(), &tables);
    system.stop().await?;
    match &violations[..] {
        [] => Ok(()),
        violations => Err(format!("the promise is broken: {violations:?}").into()),
    }
}

fn manner(triggers: impl FnMut() -> Option<Trigger> + Send + Sync + 'static) -> Manner {
    Manner {
        renew: false,
        wait_ms: 0,
        triggers: Box::new(triggers),
    }
}

fn device(site: &Arc<Site>, point: Point, server: usize) -> Device {
    let key = format!("dies-{point}");
    let linger_ms = match point {
        Point::Committing => 300,
        _ => 0,
    };
    let text = "text".to_owned();
    Device {
        site: Arc::clone(site),
        key: key.clone(),
        item: Item::Make(Draft {
            key,
            text,
            linger_ms,
        }),
        server: Some(server),
        temper: Temper::Patient,
        dice: fastrand::Rng::new(),
    }
}

/// Sends a request in which the server dies, once it is there.
async fn kill(system: &System, site: &Arc<Site>, point: Point, deaths: u64) -> Outcome {
    let mut device = device(site, point, VICTIM);
    let end = match point {
        Point::Freeing => End::Failure,
        _ => End::Success,
    };
    let whim = Whim {
        end,
        ..Whim::default()
    };
    let deadline = Instant::now() + COME_BACK;
    while system.log.kills_at_points() == deaths {
        if Instant::now() >= deadline {
            return Err(format!("{point}: the server did not die there").into());
        }
        if let history::Outcome::Answer(answer) = device.call(&whim, PATIENCE).await {
            return Err(format!("{point}: the server answered {}", answer.status).into());
        }
        // No event tells that it listens again, or that its last words were read.
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// What had been committed is replayed, and what had not is made now.
fn expect(point: Point, answer: &Answer) -> Outcome {
    let as_expected = answer.status == 201
        && point
            .is_after_commit()
            .is_none_or(|committed| committed == answer.replayed);
    if as_expected {
        Ok(())
    } else {
        Err(format!("{point}: {answer:?}").into())
    }
}
