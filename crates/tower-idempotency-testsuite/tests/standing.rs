//! The contract holds with a clock that stands still, too.

use tower_idempotency_core::MemoryClock;
use tower_idempotency_testsuite::{MemoryFixture, contract};

contract!(MemoryFixture::with_clock(MemoryClock::standing()));
