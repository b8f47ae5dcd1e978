//! The life of a record as a model, explored exhaustively.
//!
//! ```text
//! cargo test -p protocol-model -- --nocapture     every state, every mutant, with the traces
//! cargo run --release -p protocol-model           the same with more faults at once, and a table
//! ```
//!
//! # What is explored
//!
//! Up to three arrivals, each in a process of its own, of two keys: one publishes a post, the other
//! removes it and buries the first one's record. An arrival claims, takes over, renews, runs its
//! handler with a transaction or without, completes, commits, rolls back, frees, resolves a commit
//! in doubt, marks a record as unknown; and it may stop before any of these for as long as it
//! likes, or die. Meanwhile claims become stale, results expire, a purge finds rows and deletes
//! them later, an operator erases or releases. Where a connection breaks, the statement was never
//! run, was run, or will be run by the database at any later time, even after its process is dead;
//! a COMMIT in doubt lands or is rolled back at any later time, and holds its locks until then.
//!
//! [`Promise`] says what must hold in every state, [`TABLE`] which fence or check keeps which
//! promise: each line drops one, and the shortest way to the broken promise is printed. Two
//! lines break nothing, which visiting every state shows: a completion that names its token needs
//! no look at the state, because no claim completes twice, and a take-over that looks at state and
//! time needs no token, because whatever is stale or expired may be taken. They are kept in the
//! code as second fences. [`Landmark`] says what must have been reached, lest the promises hold
//! for want of trying.
//!
//! # What it has of the code
//!
//! What a record means to an arrival, and what it proves of a commit in doubt, is not modelled:
//! [`Record::decide`](tower_idempotency_core::Record::decide) and
//! [`Resolution::of`](tower_idempotency_core::Resolution::of) are called. `arrival` and
//! `cut` follow `work.rs` and `finish.rs` of the core and `store.rs` of the sqlx crate, step by step; `database`
//! follows their SQL, each statement at one instant. A change there needs one here.
//!
//! # What is left out
//!
//! * Time is abstract: any claim may be stale the moment after it was made, any result expired. The
//!   30 days of a purge are no longer than the staleness of a claim. Clocks are one.
//! * Isolation: statements are atomic and see what is committed; a conflict under a stricter level is
//!   a step that certainly failed. That the engines keep this is for the tests on real ones.
//! * Fingerprints: all arrivals of a key send the same request. Another one is answered 409, which
//!   changes nothing, or replaces as the same one would.
//! * A leaked transaction is a handler that fails late. Permits, draining, waiting for another's
//!   result (a new arrival), earlier names of an operation, results that are not kept.
//! * A fail-over that loses acknowledged commits; one that loses a claim alone is an erasure.
//! * How often a step is tried: an arrival gives up after any number of tries.
//! * A key of a removal whose post has no record: the removal fails.
//!
//! # The exception
//!
//! A handler that ends its transaction by hand may double its effect where its process dies, is taken
//! over, or loses its connection before the record is marked: see [`ByHand`]. That it then begins
//! another transaction, which may fail, is no matter of its own: the savepoint that opened with the
//! first one tells.

mod action;
mod arrival;
mod cut;
mod database;
mod decision;
mod limits;
mod model;
mod mutant;
mod promise;
mod report;
mod state;
mod symmetry;

pub use action::{Action, Client, Cut, Server, Step};
pub use limits::{ByHand, Limits};
pub use model::Model;
pub use mutant::{Line, Mutant, TABLE};
pub use promise::{Landmark, Promise};
pub use report::{Exploration, Trace, Verdict, table};
pub use state::{
    Arrival, Doomed, Effect, Fate, Job, Phase, Replay, Row, State, Statement, Then, Token, Told, Tx,
};
