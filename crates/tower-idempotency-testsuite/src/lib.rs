//! The contract that every store of tower-idempotency must pass
