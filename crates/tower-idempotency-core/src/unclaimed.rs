//! Requests without a record: their transaction is committed on 2xx, rolled back otherwise.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use tower_service::Service;
use tracing::Instrument as _;

use crate::body::ResponseBody;
use crate::error::StoreError;
use crate::finish::{completion_problem, warn_leaked};
use crate::gate::Entry;
use crate::lease::Lease;
use crate::patience::within;
use crate::problem::{Problem, ProblemKind};
use crate::response::is_success;
use crate::service::Shared;
use crate::store::{Completion, Rollback, Store};
use crate::work::log_store_failure;

impl<S: Store> Shared<S> {
    /// Runs the handler in the connection's own future: where it is dropped, so is the transaction.
    pub(crate) async fn run_unclaimed<I, B, R>(
        self,
        mut inner: I,
        mut request: Request<B>,
        lease: Lease,
        uncovered: Option<Method>,
    ) -> Result<Response<ResponseBody<R>>, I::Error>
    where
        I: Service<Request<B>, Response = Response<R>>,
        R: Body<Data = Bytes>,
    {
        let tx = self.store.lend(lease);
        request.extensions_mut().insert(tx.clone());
        let answer = inner.call(request).await;
        let success = matches!(&answer, Ok(response) if is_success(response));
        let config = Arc::clone(&self.config);
        // In a task of its own, so that a client that hangs up cannot cut a commit in the middle.
        // Counted from here: the pool must not be closed before the task runs.
        let entry = self.gate.track();
        let ending = async move { self.end_unclaimed(entry, tx, success).await };
        let ended = tokio::spawn(ending.in_current_span()).await;
        match ended.unwrap_or_else(|_| Err(in_doubt())) {
            Ok(()) => {
                // What failed, or was never found, wrote nothing.
                if let Some(method) = uncovered.filter(|_| success) {
                    config.hints.uncovered(&method);
                }
                answer.map(|response| response.map(ResponseBody::inner))
            }
            Err(problem) => Ok(config.render(&problem)),
        }
    }

    async fn end_unclaimed(self, entry: Entry, tx: S::Tx, success: bool) -> Result<(), Problem> {
        let (store, patience) = (&self.store, self.config.store_timeout);
        let completion = if success {
            within(patience, store.commit(&tx))
                .await
                .unwrap_or_else(|_| Completion::Unknown(StoreError::timed_out()))
        } else {
            match within(patience, store.rollback(&tx)).await {
                Ok(Rollback::Leaked) => Completion::Leaked,
                Ok(Rollback::RolledBack | Rollback::NotOurs) | Err(_) => Completion::Committed,
            }
        };
        match completion {
            Completion::Committed => Ok(()),
            Completion::RolledBack(error) => {
                log_store_failure("commit", &error);
                Err(completion_problem(&error).into())
            }
            Completion::NotOurs | Completion::Lost => {
                tracing::warn!(
                    "transaction lost: the handler ended it itself (COMMIT, ROLLBACK, DDL or a failed nested transaction)"
                );
                Err(in_doubt())
            }
            Completion::Leaked => {
                warn_leaked();
                tokio::spawn(async move {
                    self.store.reclaim(&tx).await;
                    drop(entry);
                });
                // What is no success goes out as it is.
                if success {
                    Err(ProblemKind::TransactionLeaked.into())
                } else {
                    Ok(())
                }
            }
            Completion::Unknown(error) => {
                log_store_failure("commit in doubt", &error);
                Err(in_doubt())
            }
        }
    }
}

/// Without a record, a retry learns nothing, and may write again.
fn in_doubt() -> Problem {
    Problem::from(ProblemKind::TransactionLost)
        .with_detail("The request may have been processed. Look before you send it again.")
}
