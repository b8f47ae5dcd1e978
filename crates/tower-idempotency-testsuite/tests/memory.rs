//! The memory store keeps the contract.

use tower_idempotency_testsuite::{MemoryFixture, contract};

contract!(MemoryFixture::new());
