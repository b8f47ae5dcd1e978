//! How a request's work ends: completed, undone, lost or in doubt.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use http::Response;
use tokio::time::sleep;

use crate::body::ResponseBody;
use crate::claim::{Claim, ClaimOutcome};
use crate::error::StoreError;
use crate::lease::{Lease, Phase};
use crate::patience::within;
use crate::problem::ProblemKind;
use crate::record::{Decision, Record, RecordState, StoredResponse};
use crate::response::Captured;
use crate::service::Shared;
use crate::store::{Completion, Resolution, Rollback, Store};
use crate::work::{Report, Stopwatch, log_store_failure, outcome_is};

/// What is left to do once the answer is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// Somebody still holds the transaction.
    Leaked,
    /// Some effect may be there, and it could not be marked.
    Unmarked,
}

/// How long one try of cleaning up may take, while a client waits for an answer that is known.
const CLEAN_UP: Duration = Duration::from_secs(5);

impl<S: Store> Shared<S> {
    /// Completes the record together with the handler's writes. Only a proven commit answers 2xx.
    pub(crate) async fn complete<R, E>(
        &self,
        tx: &S::Tx,
        claim: &Claim,
        lease: &Lease,
        captured: Captured<R>,
    ) -> (Report<R, E>, Left) {
        let Captured { stored, response } = captured;
        let stored = match self.encode(claim, stored) {
            Ok(stored) => stored.with_resource_ref(lease.take_made()),
            Err(report) => {
                // What was captured may hold the transaction.
                drop(response);
                return self.undo(tx, claim, "not-encoded", *report).await;
            }
        };
        let watch = Stopwatch::start();
        let completing = self.store.complete(tx, claim, &stored);
        let completion = within(self.config.store_timeout, completing).await;
        watch.record("complete_us");
        let completion = match (completion, lease.phase()) {
            (Ok(completion), _) => completion,
            (Err(_), Phase::Committing) => Completion::Unknown(StoreError::timed_out()),
            (Err(_), Phase::Proving) => Completion::RolledBack(StoreError::timed_out()),
            (Err(_), Phase::Unmatched) => self.whose(claim).await,
        };
        let report = match completion {
            Completion::Committed => {
                outcome_is("completed");
                if !lease.is_used() {
                    self.config.hints.unused(&claim.id.operation);
                }
                Report::Answer(Ok(response))
            }
            Completion::RolledBack(error) => {
                log_store_failure("completion", &error);
                outcome_is("rolled-back");
                self.free(claim).await;
                Report::Problem(completion_problem(&error).into())
            }
            Completion::Lost => self.lost(claim).await,
            Completion::NotOurs => return self.not_ours(claim).await,
            Completion::Leaked => {
                leaked();
                return (
                    Report::Problem(ProblemKind::TransactionLeaked.into()),
                    Left::Leaked,
                );
            }
            Completion::Unknown(error) => self.resolve(claim, &error, response).await,
        };
        (report, Left::Nothing)
    }

    /// Lets the application's codec change what is stored.
    fn encode<R, E>(
        &self,
        claim: &Claim,
        stored: StoredResponse,
    ) -> Result<StoredResponse, Box<Report<R, E>>> {
        let StoredResponse {
            status,
            content,
            resource_ref,
        } = stored;
        let encoded = match (&self.config.codec, content) {
            (Some(codec), Some(content)) => catch_unwind(AssertUnwindSafe(|| {
                codec.encode(&claim.id, content).map(Some)
            })),
            (_, content) => Ok(Ok(content)),
        };
        match encoded {
            Ok(Ok(content)) => Ok(StoredResponse {
                status,
                content,
                resource_ref,
            }),
            Ok(Err(error)) => {
                tracing::error!(%error, "result cannot be encoded");
                Err(Box::new(Report::Problem(
                    ProblemKind::RecordUnreadable.into(),
                )))
            }
            Err(payload) => Err(Box::new(Report::Panic(payload))),
        }
    }

    /// Rolls the handler's writes back, then frees the key, then lets the answer out.
    pub(crate) async fn undo<R, E>(
        &self,
        tx: &S::Tx,
        claim: &Claim,
        outcome: &'static str,
        answer: Report<R, E>,
    ) -> (Report<R, E>, Left) {
        let watch = Stopwatch::start();
        let rollback = within(self.config.store_timeout, self.store.rollback(tx)).await;
        let ended = match rollback {
            Ok(Rollback::NotOurs) => {
                let (lost, left) = self.not_ours(claim).await;
                match answer {
                    // A panic stays one: it unwinds on.
                    panic @ Report::Panic(_) => (panic, left),
                    Report::Answer(_) | Report::Problem(_) | Report::Turned(_) => (lost, left),
                }
            }
            Ok(Rollback::Leaked) => {
                leaked();
                (answer, Left::Leaked)
            }
            // Past the time the connection is dropped, and the database rolls back by itself.
            Ok(Rollback::RolledBack) | Err(_) => {
                outcome_is(outcome);
                let freed = self.free(claim).await;
                match answer {
                    panic @ Report::Panic(_) => (panic, Left::Nothing),
                    // Somebody else has the key by now, and their answer is the one that counts.
                    _ if freed == Some(false) => (self.lost(claim).await, Left::Nothing),
                    answer => (answer, Left::Nothing),
                }
            }
        };
        watch.record("undo_us");
        ended
    }

    /// After a leak: waits for the last guard, rolls back, and frees the key.
    pub(crate) async fn reclaim(&self, tx: &S::Tx, claim: &Claim) {
        match self.store.reclaim(tx).await {
            Rollback::NotOurs => self.keep_marking(claim).await,
            Rollback::RolledBack | Rollback::Leaked => drop(self.free(claim).await),
        }
    }

    /// Frees the key, and says whether it was still this claim's. Where that fails three times,
    /// staleness frees it.
    pub(crate) async fn free(&self, claim: &Claim) -> Option<bool> {
        self.insist("freeing", || self.store.free(claim)).await
    }

    /// Marks that some effect may be there, and says whether the record was still this claim's.
    async fn mark_unknown(&self, claim: &Claim) -> Option<bool> {
        self.insist("marking", || self.store.mark_unknown(claim))
            .await
    }

    /// Goes on marking until it is done, or the layer is drained: staleness would let the key run
    /// again.
    pub(crate) async fn keep_marking(&self, claim: &Claim) {
        while self.mark_unknown(claim).await.is_none() {
            tokio::select! {
                () = sleep(Duration::from_millis(100)) => {}
                () = self.gate.aborted() => return,
            }
        }
    }

    /// Completion matched nothing, and then its time was over: the claim is lost, or the
    /// transaction is. What cannot be read may be either, and must not become free.
    async fn whose(&self, claim: &Claim) -> Completion {
        let lookup = self.insist("lookup", || self.store.lookup(&claim.id)).await;
        match lookup.flatten().map(|record| record.state) {
            Some(RecordState::Claimed { token, .. }) if token != claim.token => Completion::Lost,
            Some(RecordState::Completed { .. } | RecordState::Tombstone) => Completion::Lost,
            Some(RecordState::Claimed { .. }) | None => Completion::NotOurs,
        }
    }

    /// The claim is somebody else's by now: answers with their record.
    async fn lost<R, E>(&self, claim: &Claim) -> Report<R, E> {
        tracing::warn!("claim lost: taken over while the handler ran; its writes are rolled back");
        outcome_is("lost");
        match self.insist("lookup", || self.store.lookup(&claim.id)).await {
            Some(record) => Self::others(claim, record),
            // Somebody else's result may be there.
            None => Report::Problem(ProblemKind::CommitUnknown.into()),
        }
    }

    /// What somebody else's record answers. Where there is none, a retry will find out.
    fn others<R, E>(claim: &Claim, record: Option<Record>) -> Report<R, E> {
        let decision = record.map(|record| record.decide(&claim.fingerprint));
        let outcome = match decision {
            Some(Decision::Answer(outcome)) => outcome,
            Some(Decision::Replace { .. }) | None => ClaimOutcome::InProgress,
        };
        Report::Turned(outcome)
    }

    /// Some effect may be there without a completed record: it must never run again.
    async fn not_ours<R, E>(&self, claim: &Claim) -> (Report<R, E>, Left) {
        tracing::error!(
            "transaction lost: the handler ended it itself (COMMIT, ROLLBACK, DDL or a failed nested transaction); the key will answer 410"
        );
        outcome_is("transaction-lost");
        let left = match self.mark_unknown(claim).await {
            Some(true) => Left::Nothing,
            Some(false) => return (self.marked_or_lost(claim).await, Left::Nothing),
            None => Left::Unmarked,
        };
        (Report::Problem(ProblemKind::TransactionLost.into()), left)
    }

    /// There was nothing to mark: an earlier try has done it, and its answer was lost, or the claim is
    /// somebody else's by now.
    async fn marked_or_lost<R, E>(&self, claim: &Claim) -> Report<R, E> {
        let record = self.insist("lookup", || self.store.lookup(&claim.id)).await;
        match record.flatten().map(|record| record.state) {
            Some(RecordState::Completed { token, .. }) if token == claim.token => {
                Report::Problem(ProblemKind::TransactionLost.into())
            }
            _ => self.lost(claim).await,
        }
    }

    /// Finds out whether a commit in doubt happened, by positive proof.
    async fn resolve<R, E>(
        &self,
        claim: &Claim,
        error: &StoreError,
        response: Response<ResponseBody<R>>,
    ) -> Report<R, E> {
        log_store_failure("commit in doubt", error);
        let resolution = self.insist("resolving", || self.store.resolve(claim)).await;
        let (outcome, report) = match resolution {
            Some(Resolution::Committed(_)) => ("completed", Report::Answer(Ok(response))),
            Some(Resolution::Freed) => {
                ("freed", Report::Problem(ProblemKind::ConflictRetry.into()))
            }
            Some(Resolution::Absent) => ("absent", Self::others(claim, None)),
            Some(Resolution::Other(record)) => ("lost", Self::others(claim, Some(record))),
            None => (
                "unknown",
                Report::Problem(ProblemKind::CommitUnknown.into()),
            ),
        };
        outcome_is(outcome);
        tracing::warn!(outcome, "commit in doubt resolved");
        report
    }

    /// Tries a fenced step up to three times: it can do no harm when it is repeated.
    async fn insist<T, F>(&self, what: &'static str, step: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let patience = self.config.store_timeout.min(CLEAN_UP);
        for pause in [50, 250, 0] {
            match within(patience, step()).await {
                Ok(Ok(done)) => return Some(done),
                Ok(Err(error)) => log_store_failure(what, &error),
                Err(_) => log_store_failure(what, &StoreError::timed_out()),
            }
            sleep(Duration::from_millis(pause)).await;
        }
        None
    }
}

fn leaked() {
    warn_leaked();
    outcome_is("leaked");
}

pub(crate) fn warn_leaked() {
    tracing::warn!(
        "transaction leaked: its guard outlives the handler; add `drop(conn)` before the handler answers, and await the tasks that hold it"
    );
}

/// What a client is told of a completion that certainly failed.
pub(crate) fn completion_problem(error: &StoreError) -> ProblemKind {
    if error.is_conflict() || error.is_unavailable() {
        ProblemKind::ConflictRetry
    } else if error.is_encoding() {
        ProblemKind::RecordUnreadable
    } else {
        ProblemKind::CommitFailed
    }
}
