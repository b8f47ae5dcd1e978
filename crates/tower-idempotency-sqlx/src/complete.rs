//! How a handler's transaction ends: completed and committed, or rolled back.

use sqlx::Transaction;
use tower_idempotency_core::{
    Claim, Completion, Record, RecordState, Rollback, Store as _, StoredResponse,
};

use crate::dialect::{Dialect, Proof};
use crate::error::store_error;
use crate::queries;
use crate::store::SqlxStore;
use crate::tx::{Open, commit_by_hand, unwind};

impl<DB: Dialect> SqlxStore<DB> {
    /// Completes within the handler's transaction, proves that it is ours, and commits it.
    pub(crate) async fn complete_within(
        &self,
        open: Open<DB>,
        claim: &Claim,
        response: &StoredResponse,
    ) -> Completion {
        let Open {
            mut transaction,
            token,
            ..
        } = open;
        let mut nested = false;
        if !DB::COMPLETION_PROVES {
            match DB::prove(&mut transaction, &token).await {
                Ok(Proof::Ours) => {}
                Ok(Proof::Nested) => nested = true,
                Ok(Proof::NotOurs) => return self.unmatched(transaction, claim).await,
                Err(error) => return self.failed(transaction, claim, error).await,
            }
        }
        match queries::complete::<DB>(&mut transaction, claim, response).await {
            Ok(None) => self.unmatched(transaction, claim).await,
            Ok(Some(true)) if !nested => committed::<DB>(transaction.commit().await),
            Ok(Some(_)) => committed::<DB>(commit_by_hand(transaction).await),
            Err(error) => self.failed(transaction, claim, error).await,
        }
    }

    /// Completion matched nothing: the claim is lost, or else the transaction is.
    async fn unmatched(&self, transaction: Transaction<'static, DB>, claim: &Claim) -> Completion {
        unwind(transaction).await;
        match self.lookup(&claim.id).await {
            Ok(record) if !still_claimed_by(record.as_ref(), claim) => Completion::Lost,
            Ok(_) => Completion::NotOurs,
            // Some effect may be there: the key must not become free for want of an answer.
            Err(error) => {
                tracing::warn!(%error, "whose record it is could not be read");
                Completion::NotOurs
            }
        }
    }

    /// Completion failed, so nothing was committed. In a snapshot, a lost claim is a conflict.
    async fn failed(
        &self,
        transaction: Transaction<'static, DB>,
        claim: &Claim,
        error: sqlx::Error,
    ) -> Completion {
        unwind(transaction).await;
        let error = store_error::<DB>(error);
        if error.is_conflict() {
            match self.lookup(&claim.id).await {
                Ok(record) if !still_claimed_by(record.as_ref(), claim) => return Completion::Lost,
                Ok(_) | Err(_) => {}
            }
        }
        Completion::RolledBack(error)
    }

    /// Completes without a transaction of the handler's.
    pub(crate) async fn complete_alone(
        &self,
        claim: &Claim,
        response: &StoredResponse,
    ) -> Completion {
        let writer = self.writer().await;
        let conn = self.pool().acquire().await;
        let (_writer, mut conn) = match (writer, conn) {
            (Ok(writer), Ok(conn)) => (writer, conn),
            (Err(error), _) => return Completion::RolledBack(error),
            (_, Err(error)) => return Completion::RolledBack(store_error::<DB>(error)),
        };
        match queries::complete_alone::<DB>(&mut conn, claim, response).await {
            Ok(true) => Completion::Committed,
            Ok(false) => Completion::Lost,
            Err(error) => committed::<DB>(Err(error)),
        }
    }

    /// Commits a transaction that has no record to complete.
    pub(crate) async fn commit_unclaimed(&self, open: Open<DB>) -> Completion {
        let Open {
            mut transaction,
            token,
            ..
        } = open;
        // An aborted transaction would "commit", and write nothing.
        match DB::prove(&mut transaction, &token).await {
            Ok(Proof::Ours) => committed::<DB>(transaction.commit().await),
            Ok(Proof::Nested) => committed::<DB>(commit_by_hand(transaction).await),
            Ok(Proof::NotOurs) => {
                unwind(transaction).await;
                Completion::NotOurs
            }
            Err(error) => {
                unwind(transaction).await;
                Completion::RolledBack(store_error::<DB>(error))
            }
        }
    }

    /// Rolls back, after asking whether there still is something of ours to roll back.
    pub(crate) async fn undo(&self, open: Open<DB>) -> Rollback {
        let Open {
            mut transaction,
            token,
            ..
        } = open;
        let proof = DB::prove(&mut transaction, &token).await;
        unwind(transaction).await;
        match proof {
            Ok(Proof::NotOurs) => Rollback::NotOurs,
            // An aborted transaction answers nothing, and commits nothing.
            Ok(Proof::Ours | Proof::Nested) | Err(_) => Rollback::RolledBack,
        }
    }
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
