//! Every problem that the layer answers with, and what a client does about it.
//!
//! The `type` of each problem document points to a heading here. `retryable` says whether the same
//! request with the same key may succeed later; where it is `true`, there is a `Retry-After`.
//!
//! ## key-missing
//!
//! Status 400. The operation needs an `Idempotency-Key`. Send a fresh key for each write, and the same key
//! with each retry of it.
//!
//! ## key-invalid
//!
//! Status 400. The key is malformed: more than one field line, empty, longer than 255 bytes, or with bytes
//! that a key cannot have. Nothing was done.
//!
//! ## request-invalid
//!
//! Status 400. The body broke off, or Content-Type or Content-Encoding came more than once. Nothing was
//! done.
//!
//! ## request-too-large
//!
//! Status 413. The body is larger than the operation accepts. Nothing was done.
//!
//! ## key-reused
//!
//! Status 409, or 422 where so configured. The key was used for another request: another body, query,
//! path or content type. Take a fresh key for a new write; send a retry exactly as it was.
//!
//! ## in-progress
//!
//! Status 409, retryable. The first request with this key is still running. Retry after a second.
//!
//! ## gone
//!
//! Status 410. What the key made has been deleted since. Take a fresh key to make it anew.
//!
//! ## result-not-kept
//!
//! Status 410, with `original_status`. The request was processed, but its result was too large, too slow
//! or a stream. It will not run again; read the resource instead.
//!
//! ## outcome-unknown
//!
//! Status 410. The request may have been processed: its handler ended the transaction itself. It will
//! never run again with this key. Look whether its effect is there before you send it with a fresh
//! one.
//!
//! ## store-unavailable
//!
//! Status 503, retryable. The database cannot be reached. Nothing was done.
//!
//! ## busy
//!
//! Status 503, retryable. Too many requests are running, or the server is shutting down. Nothing was done.
//!
//! ## conflict-retry
//!
//! Status 503, retryable. A concurrent write won, or the connection to the database was lost before the
//! commit. Everything was rolled back.
//!
//! ## commit-failed
//!
//! Status 500. The database refused the commit, for instance for a deferred constraint. Everything was
//! rolled back; the same request would most likely fail again.
//!
//! ## commit-unknown
//!
//! Status 503, retryable. The connection was lost in the middle of the commit, and whether it happened
//! could not be found out in time. A retry with the same key gets the truth.
//!
//! ## transaction-leaked
//!
//! Status 500. For the server's developers: a guard of `tx.acquire()` outlives the handler, for instance
//! in a spawned task. Everything is rolled back as soon as it is dropped.
//!
//! ## transaction-lost
//!
//! Status 500. For the server's developers: the handler ended the transaction itself, by COMMIT, ROLLBACK,
//! a statement that commits implicitly, or a nested transaction that failed. Later arrivals get
//! [outcome-unknown](#outcome-unknown).
//!
//! ## transaction-unusable
//!
//! Status 500. For the server's developers: the handler called `tx.acquire()` while it still held a guard,
//! or after its request was answered, or where no operation is known. The log says which.
//!
//! ## response-failed
//!
//! Status 500. The handler's response broke off before the commit. Everything was rolled back.
//!
//! ## handler-timeout
//!
//! Status 504, retryable. The handler ran longer than the ceiling of `.renew_claims(..)`. Everything was
//! rolled back.
//!
//! ## record-unreadable
//!
//! Status 500. The result cannot be stored, or what is stored cannot be read.
//!
//! ## owner-missing
//!
//! Status 500. For the server's developers: put an `Owner` into the request's extensions in the
//! authentication layer, and put that layer outside the idempotency layer.
//!
//! ## layer-missing
//!
//! Status 500. For the server's developers: put `.layer(IdempotencyLayer::new(pool))` around the handler
//! that takes a `Tx`.
//!
//! ## layer-nested
//!
//! Status 500. For the server's developers: two layers are around one handler. Keep the one on the route
//! or the one on the router.
