"""A node that says nothing for too long is silent, whatever the clocks on the wall do."""

from __future__ import annotations

from canoa.manager.silence import Signs
from canoa.vocabulary import NodeId

GW = NodeId("gw-7")
HOUR_MS = 3_600_000


def heard() -> Signs:
    signs = Signs(150.0)
    signs.heard(GW, now_ms=10 * HOUR_MS, now_s=1000.0)
    return signs


def test_a_node_is_silent_once_its_last_sign_is_too_old() -> None:
    signs = heard()

    assert not signs.is_silent(GW, 1150.0)
    assert signs.is_silent(GW, 1150.1)


def test_one_that_was_never_heard_is_silent() -> None:
    assert Signs(150.0).is_silent(GW, 0.0)


def test_a_sign_that_another_manager_heard_counts() -> None:
    signs = heard()

    signs.read(GW, 10 * HOUR_MS + 100_000, now_ms=10 * HOUR_MS + 100_000, now_s=1100.0)

    assert not signs.is_silent(GW, 1250.0)


def test_the_same_stamp_read_again_is_no_new_sign() -> None:
    signs = heard()

    signs.read(GW, 10 * HOUR_MS, now_ms=HOUR_MS, now_s=1140.0)  # the clock went back meanwhile

    assert signs.is_silent(GW, 1151.0)


def test_a_clock_that_jumps_ahead_silences_nobody() -> None:
    signs = heard()

    signs.read(GW, 10 * HOUR_MS, now_ms=20 * HOUR_MS, now_s=1001.0)

    assert not signs.is_silent(GW, 1002.0)


def test_a_stamp_of_the_future_is_one_of_now_and_grows_old_like_any() -> None:
    signs = Signs(150.0)
    signs.read(GW, 10 * HOUR_MS, now_ms=HOUR_MS, now_s=0.0)

    assert not signs.is_silent(GW, 150.0)
    assert signs.is_silent(GW, 151.0)


def test_an_old_stamp_is_old_from_the_start() -> None:
    signs = Signs(150.0)
    signs.read(GW, 9 * HOUR_MS, now_ms=10 * HOUR_MS, now_s=0.0)

    assert signs.is_silent(GW, 0.0)


def test_answers_do_not_keep_an_address_that_a_node_no_longer_has() -> None:
    signs = Signs(150.0)
    signs.heard(GW, now_ms=0, now_s=0.0, is_registration=True)
    signs.heard(GW, now_ms=100_000, now_s=100.0)

    assert signs.age_s(GW, 160.0) == 60.0
    assert signs.registered_s_ago(GW, 160.0) == 160.0


def test_signs_that_could_not_be_written_are_written_later_unless_there_are_newer_ones() -> None:
    signs = heard()
    taken = signs.take_unwritten()
    signs.heard(GW, now_ms=11 * HOUR_MS, now_s=1001.0)

    signs.give_back(taken)

    assert signs.take_unwritten() == {GW: 11 * HOUR_MS}
    assert signs.take_unwritten() == {}
