"""What a manager did not see is not held against anybody: before it began, and before somebody set its clock."""

from __future__ import annotations

import pytest

from canoa.manager.watching import JUMP_MS, Watching
from canoa.testing import VirtualClock
from canoa.vocabulary import NodeId

GW = NodeId("gw-7")


class SetClock(VirtualClock):
    """Somebody sets the wall clock."""

    ahead_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.ahead_s


def now_ms(clock: VirtualClock) -> int:
    return int(clock.now_s() * 1000)


def test_a_manager_watches_since_its_start_however_long_nobody_asks() -> None:
    clock = SetClock()
    started_ms = now_ms(clock)
    watching = Watching(clock)

    clock.advance(86_400)

    assert watching.since_ms() == started_ms


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
def test_a_clock_that_was_set_begins_the_watch_anew(ahead_s: float) -> None:
    clock = SetClock()
    watching = Watching(clock)
    watching.answered(GW)

    clock.ahead_s = ahead_s
    set_ms = now_ms(clock)
    assert watching.since_ms() == set_ms
    clock.advance(60)

    assert watching.since_ms() == set_ms
    assert watching.answered_ms(GW) is None


def test_a_clock_that_is_being_corrected_changes_nothing() -> None:
    clock = SetClock()
    watching = Watching(clock)
    started_ms = now_ms(clock)

    for _ in range(10):
        clock.ahead_s += 0.9 * JUMP_MS / 1000
        assert watching.since_ms() == started_ms


def test_an_answer_is_told_to_the_others_once_and_theirs_not_at_all() -> None:
    watching = Watching(VirtualClock())

    watching.answered(GW)
    watching.others_heard([NodeId("gw-8")])

    assert watching.take_untold() == [GW]
    assert watching.take_untold() == []
    assert watching.answered_ms(NodeId("gw-8")) is not None
