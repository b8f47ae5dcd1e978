//! A store of one's own: records in [redb](https://docs.rs/redb), an embedded database in pure Rust,
//! in the same file as the data that they protect. No sqlx, no driver, no server.
//!
//! Run with
//!
//! ```text
//! cargo run -p custom-store
//! ```
//!
//! and try, in another terminal:
//!
//! ```text
//! note() { curl -i http://127.0.0.1:3001/notes -H 'Content-Type: application/json' "$@"; }
//!
//! note -H 'Idempotency-Key: k1' -d '{"text":"milk"}'     # 201
//! note -H 'Idempotency-Key: k1' -d '{"text":"milk"}'     # 201, Idempotent-Replayed: true
//! note -H 'Idempotency-Key: k1' -d '{"text":"bread"}'    # 409: the key is taken
//! note                                                   # one note
//! ```
//!
//! # Writing a store
//!
//! | file | what it shows |
//! |---|---|
//! | `record.rs` | what a record is in the database, and that what makes no sense is refused |
//! | `records.rs` | the table: every change of a claimed record first finds its token |
//! | `database.rs` | who waits for whom, off the runtime's own threads |
//! | `store.rs` | [`Store`](tower_idempotency::Store): what each outcome is, and when a commit is in doubt |
//! | `tx.rs` | the transaction that handlers get, as an extractor |
//! | `notes.rs` | the service: its handlers write through that transaction |
//! | `tests/contract.rs` | the contract of all stores, in one line, and how to let time pass |
//!
//! In use it is as any other store: [`RedbStore::open`], then `IdempotencyLayer::with_store(store)`,
//! then a [`RedbTx`] among a handler's arguments.
//!
//! # What this engine brings
//!
//! * **One writer.** `begin_write` blocks a thread until the writer before is done, so the store has
//!   a queue in front of it, in which waiting costs nothing. Whoever waits too long is told that the
//!   store is unavailable: 503, retry. Handlers should do slow work before
//!   [`acquire`](RedbTx::acquire), and little after it.
//! * **Readers wait for nobody.** An arrival whose record is there is answered by reading.
//! * **A handler cannot end its transaction**: redb commits and aborts by value, and only a reference
//!   is lent.
//! * **One process.** The file is locked while it is open. Records outlive the process.

mod database;
mod notes;
mod record;
mod records;
mod store;
mod tx;

pub use database::{RedbStore, failed};
pub use notes::router;
pub use tx::{RedbTx, Writer};
