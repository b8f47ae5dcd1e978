//! Runs a behaviour that is expected to fail, and catches its panic without printing it.

use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;
use std::time::Duration;

use tower_idempotency_testsuite::behaviours::{self, Behaviour};

use crate::fixture::FlawedFixture;
use crate::flaw::Flaw;

/// After this long a broken store is taken to hang, which is a failure too.
const LIMIT: Duration = Duration::from_secs(8);

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the panics of trials off the output, and no others.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !EXPECTED.get() {
                print(info);
            }
        }));
    });
}

/// With what a store of that flaw fails that behaviour; `None` where it has it.
pub(crate) fn failure(flaw: Flaw, behaviour: &str) -> Option<String> {
    let all = behaviours::all::<FlawedFixture>();
    let behaviour = all.iter().find(|listed| listed.name() == behaviour);
    runtime().block_on(trial(flaw, behaviour.expect("a listed behaviour")))
}

/// Flaw, behaviour and what it said: all that stores of these flaws fail, run at once.
pub(crate) fn failures(flaws: &[Flaw]) -> Vec<(Flaw, &'static str, String)> {
    runtime().block_on(async {
        let mut trials = Vec::new();
        for flaw in flaws.iter().copied() {
            for behaviour in behaviours::all::<FlawedFixture>() {
                trials.push(tokio::spawn(async move {
                    let message = trial(flaw, &behaviour).await?;
                    Some((flaw, behaviour.name(), message))
                }));
            }
        }
        let mut failed = Vec::new();
        for trial in trials {
            failed.extend(trial.await.expect("a trial catches panics"));
        }
        failed
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

async fn trial(flaw: Flaw, behaviour: &Behaviour<FlawedFixture>) -> Option<String> {
    silence();
    let fixture = FlawedFixture::new(flaw);
    let mut run = pin!(behaviour.run(&fixture));
    let caught = poll_fn(|cx| {
        EXPECTED.set(true);
        let polled = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx)));
        EXPECTED.set(false);
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(None),
            Err(payload) => Poll::Ready(Some(message(payload.as_ref()))),
        }
    });
    match tokio::time::timeout(LIMIT, caught).await {
        Ok(failure) => failure,
        Err(_) => Some("it hangs".to_owned()),
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
