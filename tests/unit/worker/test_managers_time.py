"""A node learns from heartbeats how far its clock is from that of its managers."""

from __future__ import annotations

import pytest

from canoa.wire.task import MAX_MS
from canoa.worker.managers_time import IN_STEP_MS, ManagersTime

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
BEAT_MS = 5_000
LATE_MS = 20_000  # for a heartbeat that waited


class Node:
    """With a clock that may be wrong, and be set."""

    def __init__(self, off_ms: int = 0) -> None:
        self.time = ManagersTime()
        self.off_ms = off_ms
        self._elapsed_ms = 1_000

    def hears(self, manager_off_ms: int = 0, *, late_ms: int = 0) -> bool:
        """A heartbeat, the usual time after the last one."""
        self._elapsed_ms += BEAT_MS
        return self.time.heard(self._true_ms - late_ms + manager_off_ms, self._wall_ms, self._elapsed_ms)

    @property
    def ahead_ms(self) -> int:
        return self.time.ahead_ms(self._wall_ms, self._elapsed_ms)

    @property
    def _true_ms(self) -> int:
        return NOW_MS + self._elapsed_ms

    @property
    def _wall_ms(self) -> int:
        return self._true_ms + self.off_ms


def test_whoever_heard_nobody_takes_its_own_clock() -> None:
    assert Node(HOUR_MS).ahead_ms == 0


@pytest.mark.parametrize("off_ms", [-IN_STEP_MS, -40, 0, 40, IN_STEP_MS])
def test_clocks_in_step_are_taken_as_they_are(off_ms: int) -> None:
    node = Node(off_ms)

    assert not node.hears()
    assert node.ahead_ms == 0


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_a_clock_that_is_off_is_told_once(off_ms: int) -> None:
    node = Node(off_ms)

    assert [node.hears() for _ in range(4)] == [True, False, False, False]
    assert node.ahead_ms == off_ms


def test_a_heartbeat_that_was_late_says_nothing_about_the_clock() -> None:
    node = Node()
    node.hears()
    node.hears()

    assert not node.hears(late_ms=LATE_MS)
    assert node.ahead_ms == 0


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_a_clock_that_is_set_right_counts_from_that_moment(off_ms: int) -> None:
    node = Node(off_ms)
    node.hears()

    node.off_ms = 0

    assert node.ahead_ms == 0


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_a_clock_that_is_set_wrong_is_known_with_the_next_heartbeat(off_ms: int) -> None:
    node = Node()
    node.hears()
    node.off_ms = off_ms

    assert node.hears()
    assert node.ahead_ms == off_ms


@pytest.mark.parametrize("off_ms", [0, -HOUR_MS // 2])
@pytest.mark.parametrize("heard_before", [1, 2, 5])
def test_a_heartbeat_of_a_manager_whose_clock_is_ahead_makes_nothing_expire(heard_before: int, off_ms: int) -> None:
    node = Node(off_ms)
    for _ in range(heard_before):
        node.hears()

    node.hears(manager_off_ms=HOUR_MS)

    assert node.ahead_ms == off_ms


@pytest.mark.parametrize("off_ms", [0, -HOUR_MS // 2])
def test_of_two_managers_that_both_think_they_lead_the_one_whose_clock_is_ahead_makes_nothing_expire(
    off_ms: int,
) -> None:
    node = Node(off_ms)
    node.hears()
    seen = set()
    for beat in range(10):
        node.hears(manager_off_ms=0 if beat % 2 else HOUR_MS)
        seen.add(node.ahead_ms)

    assert seen == {off_ms}


def test_heartbeats_that_waited_while_the_link_was_cut_say_nothing_about_the_clock() -> None:
    node = Node()
    node.hears()

    news = [node.hears(late_ms=late_ms) for late_ms in (25_000, 15_000, 8_000, 0)]

    assert not any(news)
    assert node.ahead_ms == 0


def test_the_same_heartbeat_by_two_ways_counts_once() -> None:
    node = Node()
    node.hears()
    for _ in range(3):
        node.time.heard(NOW_MS + HOUR_MS, NOW_MS, 0)

    assert node.ahead_ms == 0


@pytest.mark.parametrize("ts", [0, -1, MAX_MS + 1, 2**70])
def test_what_no_clock_says_is_not_heard(ts: int) -> None:
    time = ManagersTime()

    assert not time.heard(ts, NOW_MS, 0)
    assert time.ahead_ms(NOW_MS, 0) == 0
