//! How a handler's transaction ends: completed and committed, or rolled back.

use tower_idempotency_core::{
    Claim, Completion, Lease, Record, RecordState, Rollback, StoreError, StoredResponse,
};

use crate::dialect::Dialect;
use crate::error::store_error;
use crate::leash::{Leash, Proof};
use crate::loan::Loan;
use crate::queries;
use crate::row::Row;
use crate::store::SqlxStore;
use crate::tx::Open;

impl<DB: Dialect> SqlxStore<DB> {
    /// Completes within the handler's transaction, proves that it is ours, and commits it.
    pub(crate) async fn complete_within(
        &self,
        open: Open<DB>,
        claim: &Claim,
        lease: &Lease,
        response: &StoredResponse,
    ) -> Completion {
        let Open { mut leash, .. } = open;
        lease.proving();
        if !DB::COMPLETION_PROVES {
            match leash.prove().await {
                Proof::Ours => {}
                Proof::NotOurs | Proof::RolledBack => {
                    return unmatched(leash, claim, lease).await;
                }
                Proof::Unasked(error) => return failed(leash, claim, lease, error).await,
            }
        }
        let completing = async |conn: &mut DB::Connection| {
            queries::complete::<DB>(conn, self.sending, claim, response).await
        };
        match leash.run(completing).await {
            Ok(true) => {
                lease.committing();
                committed::<DB>(leash.commit().await)
            }
            Ok(false) => unmatched(leash, claim, lease).await,
            Err(error) if DB::COMPLETION_PROVES => failed(leash, claim, lease, error).await,
            // It was ours just before, so the database has rolled it back, or is about to.
            Err(error) => undone(leash, claim, error).await,
        }
    }

    /// Completes without a transaction of the handler's.
    pub(crate) async fn complete_alone(
        &self,
        claim: &Claim,
        lease: &Lease,
        response: &StoredResponse,
    ) -> Completion {
        let _writer = match self.writer().await {
            Ok(writer) => writer,
            Err(error) => return Completion::RolledBack(error),
        };
        let mut loan = match Loan::of(self.pool()).await {
            Ok(loan) => loan,
            Err(error) => return Completion::RolledBack(store_error::<DB>(error)),
        };
        lease.committing();
        let completing = async |conn: &mut DB::Connection| {
            let matched =
                queries::complete_alone::<DB>(conn, self.sending, claim, response).await?;
            DB::confirm(conn).await.map(|()| matched)
        };
        match loan.run(completing).await {
            Ok(true) => Completion::Committed,
            Ok(false) => Completion::Lost,
            Err(error) => committed::<DB>(Err(error)),
        }
    }

    /// Commits a transaction that has no record to complete.
    pub(crate) async fn commit_unclaimed(&self, open: Open<DB>) -> Completion {
        let Open { mut leash, .. } = open;
        // An aborted transaction would "commit", and write nothing.
        match leash.prove().await {
            Proof::Ours => committed::<DB>(leash.commit().await),
            Proof::NotOurs | Proof::RolledBack => Completion::NotOurs,
            Proof::Unasked(error) => {
                leash.rollback().await;
                Completion::RolledBack(store_error::<DB>(error))
            }
        }
    }

    /// Rolls back, after asking whether there still is something of ours to roll back.
    pub(crate) async fn undo(&self, open: Open<DB>) -> Rollback {
        let Open { mut leash, .. } = open;
        let proof = leash.prove_and_undo().await;
        leash.rollback().await;
        match proof {
            Proof::NotOurs => Rollback::NotOurs,
            Proof::Ours | Proof::RolledBack | Proof::Unasked(_) => Rollback::RolledBack,
        }
    }
}

/// Completion matched nothing: the claim is lost, or else the transaction is. Asks on the connection
/// that is there: another may not be to be had.
async fn unmatched<DB: Dialect>(mut leash: Leash<DB>, claim: &Claim, lease: &Lease) -> Completion {
    lease.unmatched();
    leash.rollback().await;
    match lookup(&mut leash, claim).await {
        Ok(record) if !still_claimed_by(record.as_ref(), claim) => Completion::Lost,
        Ok(_) => Completion::NotOurs,
        // Some effect may be there: the key must not become free for want of an answer.
        Err(error) => {
            tracing::warn!(%error, "whose record it is could not be read");
            Completion::NotOurs
        }
    }
}

/// Completion failed, so nothing of ours was committed. In a snapshot, a lost claim is a conflict.
async fn failed<DB: Dialect>(
    mut leash: Leash<DB>,
    claim: &Claim,
    lease: &Lease,
    error: sqlx::Error,
) -> Completion {
    if let Proof::NotOurs = leash.prove_and_undo().await {
        return unmatched(leash, claim, lease).await;
    }
    undone(leash, claim, error).await
}

/// Nothing of ours is committed.
async fn undone<DB: Dialect>(
    mut leash: Leash<DB>,
    claim: &Claim,
    error: sqlx::Error,
) -> Completion {
    leash.rollback().await;
    let error = store_error::<DB>(error);
    if error.is_conflict() {
        match lookup(&mut leash, claim).await {
            Ok(record) if !still_claimed_by(record.as_ref(), claim) => return Completion::Lost,
            Ok(_) | Err(_) => {}
        }
    }
    Completion::RolledBack(error)
}

async fn lookup<DB: Dialect>(
    leash: &mut Leash<DB>,
    claim: &Claim,
) -> Result<Option<Record>, StoreError> {
    let sending = leash.sending;
    let looking =
        async |conn: &mut DB::Connection| queries::lookup::<DB>(conn, sending, &claim.id).await;
    let row = leash.run(looking).await.map_err(store_error::<DB>)?;
    row.map(Row::into_record).transpose()
}

/// Whether the record is still that claim's, and claimed.
pub(crate) fn still_claimed_by(record: Option<&Record>, claim: &Claim) -> bool {
    record.is_some_and(|record| {
        matches!(&record.state, RecordState::Claimed { token, .. } if *token == claim.token)
    })
}

/// What a COMMIT that ended so has done.
fn committed<DB: Dialect>(ended: Result<(), sqlx::Error>) -> Completion {
    match ended {
        Ok(()) => Completion::Committed,
        Err(sqlx::Error::Database(error)) if DB::certainly_not_committed(error.as_ref()) => {
            Completion::RolledBack(store_error::<DB>(sqlx::Error::Database(error)))
        }
        Err(error) => Completion::Unknown(store_error::<DB>(error)),
    }
}
