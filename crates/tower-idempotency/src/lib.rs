//! Exactly-once HTTP writes for axum
