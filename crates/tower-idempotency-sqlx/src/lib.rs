//! Stores of tower-idempotency over sqlx
