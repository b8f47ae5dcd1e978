//! Claims that meet are made by one statement.
//!
//! A claim is a transaction of its own, and much of what it costs the database is the same for one
//! as for many. So while one is under way those that arrive wait for it to end, and share the next
//! statement; but not for long: where the database is far away, more are under way at once.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Pool;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower_idempotency_core::Claim;

use crate::dialect::Dialect;
use crate::driver::Sending;
use crate::loan::Loan;
use crate::queries;
use crate::row::Row;
use crate::store::insert;

/// How many statements claim at once.
const TURNS: usize = 4;

/// How soon one may follow another that has not ended. By then one has, where the database is near;
/// two of them would share neither their work nor their wait for the disk.
const PACE: Duration = Duration::from_millis(5);

/// How many claims one statement makes at the most.
const MOST: usize = 64;

/// How long a claim waits in line: past that it goes alone, so that nobody depends on how long
/// others take.
const IN_LINE: Duration = Duration::from_millis(100);

/// How long a statement may take that many wait for: its connection may be dead.
const TOGETHER: Duration = Duration::from_secs(2);

type Made = Result<Option<Row>, sqlx::Error>;

/// The claims of a store.
pub(crate) struct Joined<DB: Dialect> {
    pool: Pool<DB>,
    sending: Sending,
    /// Whether their commits do not wait for the disk.
    pub(crate) relaxed: bool,
    line: Mutex<Line>,
}

struct Line {
    turns: usize,
    /// When the last turn was taken.
    taken: Instant,
    waiting: Vec<Waiting>,
}

impl Line {
    fn take_turn(&mut self) {
        self.turns += 1;
        self.taken = Instant::now();
    }

    fn has_turn(&self) -> bool {
        self.turns == 0 || (self.turns < TURNS && self.taken.elapsed() >= PACE)
    }
}

/// A claim that waits for its turn.
struct Waiting {
    claim: Claim,
    /// Dropped where it is to be made alone.
    reply: oneshot::Sender<Made>,
}

/// The right to run one statement. Its drop hands the turn to who waits.
struct Turn<DB: Dialect>(Arc<Joined<DB>>);

impl<DB: Dialect> Joined<DB> {
    pub(crate) fn new(pool: Pool<DB>, sending: Sending, relaxed: bool) -> Self {
        Self {
            pool,
            sending,
            relaxed,
            line: Mutex::new(Line {
                turns: 0,
                taken: Instant::now(),
                waiting: Vec::new(),
            }),
        }
    }

    /// Makes a claim, alone or with others.
    ///
    /// # Cancellation
    ///
    /// What is claimed for somebody who does not wait any more is freed.
    pub(crate) async fn claim(self: &Arc<Self>, claim: &Claim) -> Made {
        let alone = || insert(&self.pool, self.sending, claim, self.relaxed);
        let mut reply = match self.enter(claim) {
            Ok(_turn) => return alone().await,
            Err(reply) => reply,
        };
        let made = match timeout(IN_LINE, &mut reply).await {
            Ok(made) => made,
            Err(_) if self.leave(claim) => return alone().await,
            // It is on its way.
            Err(_) => reply.await,
        };
        match made {
            Ok(made) => made,
            Err(_) => alone().await,
        }
    }

    /// Says whether the claim was still in line.
    fn leave(&self, claim: &Claim) -> bool {
        let waiting = &mut self.line().waiting;
        let before = waiting.len();
        waiting.retain(|waiting| waiting.claim.token != claim.token);
        waiting.len() < before
    }

    /// Takes a turn, or gets into the line.
    fn enter(self: &Arc<Self>, claim: &Claim) -> Result<Turn<DB>, oneshot::Receiver<Made>> {
        let mut line = self.line();
        let has_turn = line.has_turn();
        // Many are one statement only where that is prepared.
        if has_turn && line.waiting.is_empty() || matches!(self.sending, Sending::Plain(_)) {
            line.take_turn();
            return Ok(Turn(Arc::clone(self)));
        }
        let (reply, made) = oneshot::channel();
        let claim = claim.clone();
        line.waiting.push(Waiting { claim, reply });
        if has_turn {
            line.take_turn();
            drop(line);
            // Handed to all who wait.
            drop(Turn(Arc::clone(self)));
        }
        Err(made)
    }

    /// Makes the claims of all who wait.
    async fn together(&self, turn: Turn<DB>, mut waiting: Vec<Waiting>) {
        waiting.retain(|waiting| !waiting.reply.is_closed());
        // The same order everywhere, so that two statements never wait for each other.
        waiting.sort_unstable_by(|one, other| one.claim.id.cmp(&other.claim.id));
        let claims: Vec<&Claim> = waiting.iter().map(|waiting| &waiting.claim).collect();
        let together = async {
            let mut loan = Loan::of(&self.pool).await?;
            let claiming = async |conn: &mut DB::Connection| {
                let Some(joining) = DB::JOINING else {
                    // No row: the claims then look.
                    return Ok(Vec::new());
                };
                let statement = match self.relaxed {
                    true => joining.many_relaxed,
                    false => joining.many,
                };
                DB::claim_many(conn, statement, &claims).await
            };
            loan.run(claiming).await
        };
        // Dropped in the middle, it closes the connection. What it may still have claimed by then
        // bears the token of who asks again.
        let made = timeout(TOGETHER, together).await;
        drop(turn);
        let mut rows = match made {
            Ok(Ok(rows)) => rows,
            // There is no connection: each would only wait for one once more.
            Ok(Err(sqlx::Error::PoolTimedOut)) => {
                for waiting in waiting {
                    let _ = waiting.reply.send(Err(sqlx::Error::PoolTimedOut));
                }
                return;
            }
            // One of them may be to blame. Alone, each meets its own error.
            Ok(Err(_)) | Err(_) => return,
        };
        let mut abandoned = Vec::new();
        for Waiting { claim, reply } in waiting {
            let found = rows.iter().position(|(token, _)| *token == claim.token);
            let row = found.map(|found| rows.swap_remove(found).1);
            let acquired = row.as_ref().is_some_and(Row::is_acquired);
            if reply.send(Ok(row)).is_err() && acquired {
                abandoned.push(claim);
            }
        }
        // Once all have their answers: nobody waits for what is done for those who have gone.
        for claim in abandoned {
            self.free(&claim).await;
        }
    }

    /// Nobody waits for it any more. Where this fails, staleness frees it.
    async fn free(&self, claim: &Claim) {
        let freed = async {
            let mut loan = Loan::of(&self.pool).await?;
            let freeing = async |conn: &mut DB::Connection| {
                queries::free::<DB>(conn, self.sending, &claim.id, &claim.token).await
            };
            loan.run(freeing).await
        };
        if let Err(error) = freed.await {
            tracing::warn!(%error, "a claim that nobody waits for could not be freed");
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Nothing in it is ever half-written.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<DB: Dialect> Drop for Turn<DB> {
    fn drop(&mut self) {
        let runtime = Handle::try_current();
        let mut line = self.0.line();
        let most = line.waiting.len().min(MOST);
        let rest = line.waiting.split_off(most);
        let waiting = mem::replace(&mut line.waiting, rest);
        match runtime {
            Ok(runtime) if most > 0 => {
                line.taken = Instant::now();
                // Not with the line locked: a runtime that goes down drops the task, and its turn.
                drop(line);
                let turn = Turn(Arc::clone(&self.0));
                runtime.spawn(async move {
                    let joined = Arc::clone(&turn.0);
                    joined.together(turn, waiting).await;
                });
            }
            // Without a runtime nobody can be served: each then goes alone.
            _ => {
                line.turns -= 1;
                line.waiting.clear();
            }
        }
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::sync::Arc;

    use sqlx::{PgPool, Postgres};
    use tokio::runtime::Builder;
    use tower_idempotency_core::{Claim, Fingerprint, IdempotencyKey, Operation, Owner, RecordId};

    use super::{Joined, TURNS, Turn};
    use crate::driver::Sending;

    /// A turn that is handed on where the runtime goes down comes back: otherwise every later claim
    /// would wait in line for nobody.
    #[test]
    fn a_turn_survives_its_runtime() {
        let id = RecordId {
            owner: Owner::shared(),
            operation: Operation::from_static("publish"),
            key: IdempotencyKey::from_text("k").unwrap(),
        };
        let claim = Claim::new(id, Fingerprint::from_stored("hs1:"));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let entered = handle.enter();
        let pool = PgPool::connect_lazy("postgres://nobody@localhost/nowhere").unwrap();
        let joined = Arc::new(Joined::<Postgres>::new(pool, Sending::Prepared, false));
        let take = || {
            joined.line().take_turn();
            Turn(Arc::clone(&joined))
        };
        let turns: Vec<_> = (0..TURNS).map(|_| take()).collect();
        let mut waiting = joined.enter(&claim).err().unwrap();
        drop(runtime);
        drop(turns);
        assert_eq!(joined.line().turns, 0);
        assert!(waiting.try_recv().is_err(), "it goes alone");
        drop(entered);
    }
}
