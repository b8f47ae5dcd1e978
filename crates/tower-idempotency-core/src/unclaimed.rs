//! Requests without a record: their transaction is committed on 2xx, rolled back otherwise.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::error::StoreError;
use crate::lease::Lease;
use crate::problem::{Problem, ProblemKind};
use crate::store::{Completion, Rollback, Store};

/// Runs the handler in the connection's own future: where it is dropped, so is the transaction.
pub(crate) async fn run<S, I, B, R>(
    store: S,
    mut inner: I,
    mut request: Request<B>,
    lease: Lease,
) -> Result<Response<ResponseBody<R>>, I::Error>
where
    S: Store,
    I: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    let tx = store.lend(lease);
    request.extensions_mut().insert(tx.clone());
    let answer = inner.call(request).await;
    let success = matches!(&answer, Ok(response) if response.status().is_success());
    // In a task of its own, so that a client that hangs up cannot cut a commit in the middle.
    let ended = tokio::spawn(async move { end(&store, &tx, success).await }).await;
    match ended.unwrap_or(Err(ProblemKind::CommitUnknown)) {
        Ok(()) => answer.map(|response| response.map(ResponseBody::inner)),
        Err(kind) => Ok(Problem::from(kind).to_response()),
    }
}

async fn end<S: Store>(store: &S, tx: &S::Tx, success: bool) -> Result<(), ProblemKind> {
    if !success {
        if store.rollback(tx).await == Rollback::Leaked {
            leaked(store, tx);
        }
        return Ok(());
    }
    match store.commit(tx).await {
        Completion::Committed => Ok(()),
        Completion::RolledBack(error) => {
            log(&error, "transaction rolled back");
            Err(if error.is_conflict() || error.is_unavailable() {
                ProblemKind::ConflictRetry
            } else {
                ProblemKind::CommitFailed
            })
        }
        Completion::NotOurs | Completion::Lost => {
            tracing::warn!("transaction lost: the handler ended it itself");
            Err(ProblemKind::TransactionLost)
        }
        Completion::Leaked => {
            leaked(store, tx);
            Err(ProblemKind::TransactionLeaked)
        }
        Completion::Unknown(error) => {
            log(&error, "commit in doubt");
            Err(ProblemKind::CommitUnknown)
        }
    }
}

fn log(error: &StoreError, what: &'static str) {
    let source = std::error::Error::source(error).map(tracing::field::display);
    tracing::warn!(%error, source, "{what}");
}

fn leaked<S: Store>(store: &S, tx: &S::Tx) {
    tracing::warn!("transaction leaked: its guard outlives the handler");
    let (store, tx) = (store.clone(), tx.clone());
    tokio::spawn(async move { store.reclaim(&tx).await });
}
