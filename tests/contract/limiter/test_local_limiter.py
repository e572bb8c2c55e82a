"""The limiter of a process promises what the store promises."""

from __future__ import annotations

from tests.contract.store.test_leases_and_limits import (
    test_a_freed_slot_is_taken_by_the_next,
    test_a_key_has_as_many_slots_as_its_limit,
    test_a_pause_allows_a_burst_and_no_more,
    test_a_rate_may_be_finer_than_a_millisecond,
    test_a_rate_reserved_by_a_clock_a_year_ahead_blocks_nobody,
    test_a_rate_reserved_by_a_clock_that_is_a_little_ahead_holds,
    test_a_reservation_too_far_away_reserves_nothing,
    test_a_slot_expires_unless_its_holder_renews_it,
    test_freeing_nothing_or_what_nobody_holds_is_fine,
    test_several_programs_never_exceed_the_rate,
    test_several_programs_never_share_a_slot,
    test_starts_are_reserved_one_after_the_other,
)

__all__ = [
    "test_a_freed_slot_is_taken_by_the_next",
    "test_a_key_has_as_many_slots_as_its_limit",
    "test_a_pause_allows_a_burst_and_no_more",
    "test_a_rate_may_be_finer_than_a_millisecond",
    "test_a_rate_reserved_by_a_clock_a_year_ahead_blocks_nobody",
    "test_a_rate_reserved_by_a_clock_that_is_a_little_ahead_holds",
    "test_a_reservation_too_far_away_reserves_nothing",
    "test_a_slot_expires_unless_its_holder_renews_it",
    "test_freeing_nothing_or_what_nobody_holds_is_fine",
    "test_several_programs_never_exceed_the_rate",
    "test_several_programs_never_share_a_slot",
    "test_starts_are_reserved_one_after_the_other",
]
