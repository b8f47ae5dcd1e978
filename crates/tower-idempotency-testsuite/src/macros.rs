//! One test for each behaviour.

use std::future::Future;
use std::time::Duration;

/// After this long a behaviour is taken to hang.
const LIMIT: Duration = Duration::from_secs(120);

/// Tests a store: expands to one test for each of the [`behaviours`](crate::behaviours).
///
/// Takes an expression that makes a [`Fixture`](crate::Fixture). It is evaluated anew for each
/// test, in an async block on a multi-threaded tokio runtime, so it may await. The crate that uses
/// it needs no tokio of its own. Two stores in one file go into two modules.
///
/// ```
/// mod memory {
///     use tower_idempotency_testsuite::{MemoryFixture, contract};
///
///     contract!(MemoryFixture::new());
/// }
/// ```
#[macro_export]
macro_rules! contract {
    ($fixture:expr) => {
        $crate::__behaviours! { __contract_tests $fixture }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __contract_tests {
    ([$fixture:expr] $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::run(stringify!($name), async {
                    let fixture = $fixture;
                    $crate::behaviours::$name(&fixture).await;
                    $crate::Fixture::end(fixture).await;
                });
            }
        )*
    };
}

/// Runs one test of [`contract!`](crate::contract).
///
/// # Panics
///
/// Where the behaviour does, or when it hangs.
pub fn run(name: &str, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        if tokio::time::timeout(LIMIT, test).await.is_err() {
            panic!("{name} hangs: it took longer than {LIMIT:?}");
        }
    });
}
