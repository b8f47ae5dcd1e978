//! What a store does, one function each.
//!
//! Each takes a [`Fixture`] that is fresh and
//! returns if its store has the behaviour. [`contract!`](crate::contract) makes a test of every
//! one; [`all`] lists them. `R<n>` is the rule of `protocol.md` that it shows.
//!
//! # Panics
//!
//! Each panics where the store fails it, and says in what.

#![allow(
    clippy::missing_panics_doc,
    reason = "panicking is how every behaviour fails: the module says so once"
)]

use std::fmt;
use std::pin::Pin;

use crate::Fixture;

mod claiming;
mod dropped;
mod expiry;
mod fences;
mod guards;
mod identity;
mod operators;
mod resolving;
mod responses;
mod takeover;
mod tombstones;
mod transactions;
mod unclaimed;

pub use claiming::*;
pub use dropped::*;
pub use expiry::*;
pub use fences::*;
pub use guards::*;
pub use identity::*;
pub use operators::*;
pub use resolving::*;
pub use responses::*;
pub use takeover::*;
pub use tombstones::*;
pub use transactions::*;
pub use unclaimed::*;

/// One of the behaviours, by name.
pub struct Behaviour<F: Fixture> {
    name: &'static str,
    run: for<'a> fn(&'a F) -> Running<'a>,
}

type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl<F: Fixture> Behaviour<F> {
    /// The name of its function and of its test.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it.
    ///
    /// # Panics
    ///
    /// Where the store fails it.
    pub async fn run(&self, fixture: &F) {
        (self.run)(fixture).await;
    }
}

impl<F: Fixture> fmt::Debug for Behaviour<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Behaviour").field(&self.name).finish()
    }
}

/// The one list of the behaviours, handed to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __behaviours {
    ($then:ident $($with:tt)*) => {
        $crate::$then! {
            [$($with)*]
            first_claim_wins
            racing_claims_have_one_winner
            claims_that_meet_are_told_apart
            a_running_request_is_in_progress
            a_completed_request_is_answered
            another_request_is_a_mismatch
            a_mismatch_is_judged_last
            a_freed_key_is_new
            an_open_transaction_keeps_nobody_waiting
            a_completion_under_way_keeps_nobody_waiting
            an_arrival_that_was_turned_away_holds_nothing
            completion_is_fenced
            completion_without_a_transaction_is_fenced
            freeing_is_fenced
            renewal_is_fenced
            marking_is_fenced
            release_is_fenced
            resolving_is_fenced
            a_completed_record_is_settled
            a_record_is_completed_once
            a_record_is_completed_once_without_a_transaction
            a_claim_lives_until_its_time_is_over
            a_stale_claim_is_taken_over
            staleness_is_the_owners_setting
            racing_takeovers_have_one_winner
            the_dead_owner_changes_nothing
            the_dead_owner_comes_after_the_heir
            writes_before_the_takeover_are_rolled_back
            a_takeover_excludes_a_late_completion
            a_takeover_excludes_a_late_renewal
            a_slow_owner_commits
            renewal_moves_staleness
            renewal_is_lost_with_the_claim
            a_released_request_is_rolled_back
            writes_and_record_commit_together
            completing_needs_no_transaction
            rollback_removes_the_writes
            rolling_back_needs_no_transaction
            ended_by_hand_is_not_ours
            written_after_the_end_is_not_ours
            rolling_back_what_was_ended_by_hand
            a_leaked_guard_is_told_at_once
            a_leaked_guard_is_told_by_the_rollback
            a_leaked_transaction_is_closed
            a_second_use_is_refused
            a_finished_transaction_is_closed
            a_dropped_claim_leaves_nothing_open
            a_dropped_completion_is_both_or_neither
            a_dropped_write_is_rolled_back
            an_unclaimed_request_commits
            an_unclaimed_request_rolls_back
            an_unclaimed_request_needs_no_transaction
            an_unclaimed_request_tells_what_is_wrong
            a_refused_transaction_says_so
            every_byte_comes_back
            a_large_body_comes_back
            an_empty_result_is_kept
            a_result_that_was_not_kept_reads_back_as_such
            every_status_comes_back
            an_unknown_outcome_reads_back_as_such
            a_completed_record_keeps_its_token
            a_resource_reference_is_recorded
            resolving_proves_a_commit
            resolving_frees_a_claim
            resolving_shows_the_heir
            resolving_tells_that_there_is_none
            a_result_lives_until_its_ttl_is_over
            an_expired_result_is_replaced
            racing_replacements_have_one_winner
            a_result_without_ttl_is_kept_for_ever
            an_unknown_outcome_never_expires
            purge_deletes_expired_results
            purge_deletes_claims_long_stale
            purge_spares_live_claims
            purge_spares_renewed_claims
            purge_spares_tombstones
            purge_respects_its_limit
            purge_spares_replaced_records
            a_deletion_buries_and_counts
            a_deletion_buries_nothing_else
            a_deletion_buries_no_claim
            a_request_does_not_bury_itself
            a_tombstone_is_rolled_back_with_its_deletion
            an_unclaimed_request_buries
            a_tombstone_answers_any_request
            a_tombstone_keeps_no_result
            a_tombstone_never_expires
            keys_are_compared_byte_for_byte
            owners_are_apart
            owners_are_compared_byte_for_byte
            operations_are_apart
            operations_are_compared_byte_for_byte
            the_parts_of_an_identity_are_not_joined
            the_longest_identities_are_apart
            odd_characters_are_themselves
            lookups_are_by_the_whole_identity
            erasing_an_owner_erases_every_record
            erasing_an_owner_spares_the_others
            an_erased_request_is_rolled_back
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __behaviour_list {
    ([] $($name:ident)*) => {
        vec![$(Behaviour {
            name: stringify!($name),
            run: |fixture| Box::pin($name(fixture)),
        }),*]
    };
}

/// All behaviours, in the order of their modules.
#[must_use]
pub fn all<F: Fixture>() -> Vec<Behaviour<F>> {
    crate::__behaviours! { __behaviour_list }
}
