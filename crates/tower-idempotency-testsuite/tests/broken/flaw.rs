//! What can be wrong with a store.

/// The one thing that is wrong with a [`FlawedStore`](crate::store::FlawedStore).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing: it keeps the contract.
    None,
    /// A claim is not committed: only the handle that made it sees it.
    ClaimSeenByOneHandle,
    /// The record is inserted without looking again.
    InsertUnfenced,
    /// A stale or expired record is replaced without comparing the token that was read.
    ReplaceUnfenced,
    /// It is replaced if it bears the token that was read, whatever has become of it.
    ReplaceIgnoresState,
    /// It is replaced though its claim was renewed since it was read.
    ReplaceIgnoresRenewal,
    /// A dropped claim leaves its connection in an open transaction, where later claims vanish.
    DroppedClaimPoisons,
    /// An arrival that is turned away because the store is busy leaves its claim.
    BusyButClaimed,
    /// A claim waits for its key's open transaction.
    ClaimWaitsForTransaction,
    /// A completion frees the record and inserts it anew.
    CompletionFreesFirst,
    /// Completed records answer `InProgress`.
    CompletedInProgress,
    FingerprintIgnored,
    /// Mismatch is judged before staleness and expiry.
    MismatchFirst,
    /// Freeing leaves the record, stale.
    FreeingKeepsRecord,
    CompletionUnfenced,
    /// As [`Flaw::CompletionUnfenced`], where there is no transaction.
    BareCompletionUnfenced,
    /// Completion compares tokens of claims, and takes completed records as they come.
    CompletesTheCompleted,
    /// As [`Flaw::CompletesTheCompleted`], only where there is no transaction.
    BareCompletesTheCompleted,
    /// The token is compared when the transaction begins, and trusted afterwards.
    FencedAtBegin,
    /// A completion that finds no record makes one.
    CompletionUpserts,
    /// A lost completion commits the handler's writes.
    LostCommitsWrites,
    /// A completion of one who was late is refused.
    SlowOwnerRefused,
    FreeingUnfenced,
    RenewalUnfenced,
    MarkingUnfenced,
    ReleaseUnfenced,
    ResolvingUnfenced,
    /// Freeing, release and the like do not look at the state.
    StateUnfenced,
    AlwaysStale,
    /// Claims live half as long.
    StaleEarly,
    NeverStale,
    /// Staleness is counted with the arrival's setting.
    StalenessOfArrival,
    RenewalDoesNothing,
    /// A renewal says that it was done, whoever's the record is.
    RenewalAlwaysDone,
    /// The heir's record is not told from one's own when completing.
    HeirOverwritten,
    /// The handler's writes are done at once.
    WritesAtOnce,
    /// Only the last write of a transaction is done.
    LastWriteOnly,
    /// A completion without transaction changes nothing.
    BareCompletionForgotten,
    RollbackKeepsWrites,
    /// A roll-back of nothing is taken for a transaction that is not ours.
    BareRollbackNotOurs,
    /// That the handler ended its transaction goes unseen.
    EndUnseen,
    /// A handler that goes on after having ended its transaction is taken for one in order.
    WriteAfterEndUnseen,
    /// As [`Flaw::EndUnseen`], when rolling back.
    EndUnseenByRollback,
    /// Completion waits for the guard.
    CompletionWaitsForGuard,
    /// A roll-back says that it was done while a guard is held.
    RollbackIgnoresGuard,
    /// After a leak the transaction is lent again.
    LentAfterLeak,
    /// A second use waits for the first.
    SecondUseWaits,
    /// A transaction that is over begins anew.
    LentAfterEnd,
    /// The handler's writes are committed before the record.
    WritesBeforeRecord,
    /// A dropped handler's write stands.
    DroppedWriteStands,
    UnclaimedForgotten,
    UnclaimedRollbackKeepsWrites,
    /// A request that began no transaction cannot commit.
    UnclaimedNeedsTransaction,
    UnclaimedEndUnseen,
    RefusedIsLent,
    /// Headers and body are stored as UTF-8.
    LossyBytes,
    /// Bodies are cut at 64 KiB.
    BodyCut,
    /// An empty result is stored as none.
    EmptyIsNotKept,
    /// A result that was not kept is stored as empty.
    NotKeptIsEmpty,
    /// Any success is stored as 200.
    StatusForgotten,
    /// Marking frees the record.
    MarkingFrees,
    TokenDropped,
    /// References are cut at 64 bytes.
    ReferenceCut,
    /// Resolving frees a completed record of its own.
    ResolvingFreesCompleted,
    /// Resolving takes a claimed record for another's.
    ResolvingLeavesClaim,
    /// Resolving takes any completed record for its own.
    AnyCompletionIsProof,
    /// Resolving takes no record for a commit that was freed.
    AbsentIsFreed,
    /// The ttl is counted from the claim.
    TtlFromClaim,
    ExpiryIgnored,
    /// Every result expires within a year.
    ForeverIsAYear,
    UnknownExpires,
    PurgeDoesNothing,
    PurgeLeavesClaims,
    PurgesLiveClaims,
    /// Claims are purged by when they were made.
    PurgesByClaimedAt,
    PurgesTombstones,
    PurgeUnlimited,
    /// The limit is for results alone.
    PurgesAllClaims,
    /// The purge deletes what it had found, without looking again.
    PurgesReplaced,
    BuriesOne,
    BuriesStrangers,
    BuriesClaims,
    /// The tombstone does not wait for the deletion's commit.
    BuriesAtOnce,
    /// The record is completed before the tombstones are made.
    BuriesItself,
    UnclaimedBuriesNothing,
    TombstoneMismatch,
    TombstoneKeepsResult,
    TombstoneExpires,
    KeysFolded,
    KeysTrimmed,
    OwnersIgnored,
    OwnersFolded,
    OperationsIgnored,
    OperationsFolded,
    IdentityJoined,
    /// Keys are cut at 250 bytes.
    KeysCut,
    /// A backslash escapes.
    KeysUnescaped,
    LookupFolded,
    ErasesCompletedOnly,
    ErasesByPrefix,
}
