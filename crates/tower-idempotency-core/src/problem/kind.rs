//! The table of problems.

use http::StatusCode;

/// Which problem it is. The whole list, with what a client should do, is in
/// [`problems`](crate::problems).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A key is required and there is none.
    KeyMissing,
    /// The key is malformed.
    KeyInvalid,
    /// The request cannot be read: its body broke off, or a header that counts came twice.
    RequestInvalid,
    /// The request's body is over the limit.
    RequestTooLarge,
    /// The key was used for another request.
    KeyReused,
    /// The first request with this key is still running.
    InProgress,
    /// What the key made has been deleted.
    Gone,
    /// The effect is there, but its result was not kept.
    ResultNotKept,
    /// Nobody knows whether there is an effect; it never runs again.
    OutcomeUnknown,
    /// The store cannot be reached.
    StoreUnavailable,
    /// Too many requests are running.
    Busy,
    /// A concurrent transaction won.
    ConflictRetry,
    /// The commit failed for good.
    CommitFailed,
    /// Whether the commit happened could not be found out in time.
    CommitUnknown,
    /// The handler left its transaction in somebody's hands.
    TransactionLeaked,
    /// The transaction was ended by somebody else.
    TransactionLost,
    /// The handler asked for a transaction in a way that cannot work.
    TransactionUnusable,
    /// The response's body failed before the commit.
    ResponseFailed,
    /// The handler ran longer than the renewal's ceiling.
    HandlerTimeout,
    /// The stored result cannot be read.
    RecordUnreadable,
    /// No owner is in the request's extensions.
    OwnerMissing,
    /// No layer is around the handler.
    LayerMissing,
    /// Two layers are around each other.
    LayerNested,
}

/// One row of the table of problems.
pub(super) struct Facts {
    pub(super) slug: &'static str,
    pub(super) status: StatusCode,
    pub(super) title: &'static str,
    pub(super) detail: &'static str,
    /// `Some` where the same request may succeed later: the seconds of `Retry-After`.
    pub(super) retry_after: Option<u8>,
}

impl ProblemKind {
    /// Every kind.
    pub const ALL: &[Self] = &[
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::RequestInvalid,
        Self::RequestTooLarge,
        Self::KeyReused,
        Self::InProgress,
        Self::Gone,
        Self::ResultNotKept,
        Self::OutcomeUnknown,
        Self::StoreUnavailable,
        Self::Busy,
        Self::ConflictRetry,
        Self::CommitFailed,
        Self::CommitUnknown,
        Self::TransactionLeaked,
        Self::TransactionLost,
        Self::TransactionUnusable,
        Self::ResponseFailed,
        Self::HandlerTimeout,
        Self::RecordUnreadable,
        Self::OwnerMissing,
        Self::LayerMissing,
        Self::LayerNested,
    ];

    pub(super) const fn facts(self) -> Facts {
        use StatusCode as S;
        const fn row(
            slug: &'static str,
            status: StatusCode,
            retry_after: Option<u8>,
            title: &'static str,
            detail: &'static str,
        ) -> Facts {
            Facts {
                slug,
                status,
                title,
                detail,
                retry_after,
            }
        }
        match self {
            Self::KeyMissing => row(
                "key-missing",
                S::BAD_REQUEST,
                None,
                "Idempotency key missing",
                "This operation needs an Idempotency-Key header: one fresh key for each write, the same key for its retries.",
            ),
            Self::KeyInvalid => row(
                "key-invalid",
                S::BAD_REQUEST,
                None,
                "Idempotency key malformed",
                "The Idempotency-Key header must be one field line with 1 to 255 visible ASCII characters, or a quoted string.",
            ),
            Self::RequestInvalid => row(
                "request-invalid",
                S::BAD_REQUEST,
                None,
                "Request cannot be read",
                "The request's body broke off, or it has more than one Content-Type or Content-Encoding line.",
            ),
            Self::RequestTooLarge => row(
                "request-too-large",
                S::PAYLOAD_TOO_LARGE,
                None,
                "Request body too large",
                "The request's body is larger than this operation accepts.",
            ),
            Self::KeyReused => row(
                "key-reused",
                S::CONFLICT,
                None,
                "Idempotency key reused",
                "This key was used for a different request. Take a fresh key for a new write.",
            ),
            Self::InProgress => row(
                "in-progress",
                S::CONFLICT,
                Some(1),
                "Request in progress",
                "A request with this key is being processed. Retry later with the same key.",
            ),
            Self::Gone => row(
                "gone",
                S::GONE,
                None,
                "Resource deleted",
                "What this key made has been deleted. Take a fresh key to make it anew.",
            ),
            Self::ResultNotKept => row(
                "result-not-kept",
                S::GONE,
                None,
                "Result not kept",
                "The request was processed, but its result was too large or could not be kept. It will not run again.",
            ),
            Self::OutcomeUnknown => row(
                "outcome-unknown",
                S::GONE,
                None,
                "Outcome unknown",
                "The request may have been processed. It will not run again with this key; look before you send it with a fresh one.",
            ),
            Self::StoreUnavailable => row(
                "store-unavailable",
                S::SERVICE_UNAVAILABLE,
                Some(1),
                "Store unavailable",
                "The request was not processed. Retry later with the same key.",
            ),
            Self::Busy => row(
                "busy",
                S::SERVICE_UNAVAILABLE,
                Some(1),
                "Too many requests in flight",
                "The request was not processed. Retry later with the same key.",
            ),
            Self::ConflictRetry => row(
                "conflict-retry",
                S::SERVICE_UNAVAILABLE,
                Some(1),
                "Conflict with a concurrent write",
                "The request was rolled back. Retry later with the same key.",
            ),
            Self::CommitFailed => row(
                "commit-failed",
                S::INTERNAL_SERVER_ERROR,
                None,
                "Commit failed",
                "The request was rolled back.",
            ),
            Self::CommitUnknown => row(
                "commit-unknown",
                S::SERVICE_UNAVAILABLE,
                Some(5),
                "Outcome not yet known",
                "The request may have been processed. Retry later with the same key to learn its outcome.",
            ),
            Self::TransactionLeaked => row(
                "transaction-leaked",
                S::INTERNAL_SERVER_ERROR,
                None,
                "Transaction leaked",
                "The request was rolled back.",
            ),
            Self::TransactionLost => row(
                "transaction-lost",
                S::INTERNAL_SERVER_ERROR,
                None,
                "Transaction lost",
                "The request may have been processed. It will not run again with this key.",
            ),
            Self::TransactionUnusable => row(
                "transaction-unusable",
                S::INTERNAL_SERVER_ERROR,
                None,
                "Transaction unusable",
                "The request was not processed.",
            ),
            Self::ResponseFailed => row(
                "response-failed",
                S::INTERNAL_SERVER_ERROR,
                None,
                "Response failed",
                "The response could not be produced. The request was rolled back.",
            ),
            Self::HandlerTimeout => row(
                "handler-timeout",
                S::GATEWAY_TIMEOUT,
                Some(1),
                "Processing took too long",
                "The request was rolled back. Retry later with the same key.",
            ),
            Self::RecordUnreadable => row(
                "record-unreadable",
                S::INTERNAL_SERVER_ERROR,
                None,
                "Stored result unreadable",
                "The result of this key cannot be stored or read.",
            ),
            Self::OwnerMissing => row(
                "owner-missing",
                S::INTERNAL_SERVER_ERROR,
                None,
                "Server misconfigured",
                "No owner is known for this request. Add `request.extensions_mut().insert(Owner::new(id)?)` to the authentication layer, and put that layer outside the idempotency layer: below it in a chain of `.layer(..)` calls.",
            ),
            Self::LayerMissing => row(
                "layer-missing",
                S::INTERNAL_SERVER_ERROR,
                None,
                "Server misconfigured",
                "The handler wants a transaction, but no idempotency layer of that database is around it. Add `.layer(IdempotencyLayer::new(pool))` to its route or router.",
            ),
            Self::LayerNested => row(
                "layer-nested",
                S::INTERNAL_SERVER_ERROR,
                None,
                "Server misconfigured",
                "Two idempotency layers are around this handler. Remove the `.layer(..)` line of either the route or the router.",
            ),
        }
    }

    /// The last part of the problem's `type`, a heading of [`problems`](crate::problems).
    #[must_use]
    pub const fn slug(self) -> &'static str {
        self.facts().slug
    }

    /// The status it is answered with.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        self.facts().status
    }

    /// Whether the same request with the same key may succeed later.
    #[must_use]
    pub const fn retryable(self) -> bool {
        self.facts().retry_after.is_some()
    }
}
