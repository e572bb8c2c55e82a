"""A node learns from heartbeats how far its clock is from that of its managers."""

from __future__ import annotations

import pytest

from canoa.worker.managers_time import BEATS, IN_STEP_MS, ManagersTime

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
LATE_MS = 20_000  # for a heartbeat that waited


def test_whoever_heard_nobody_takes_its_own_clock() -> None:
    assert ManagersTime().ahead_ms == 0


@pytest.mark.parametrize("off_ms", [-IN_STEP_MS, -40, 0, 40, IN_STEP_MS])
def test_clocks_in_step_are_taken_as_they_are(off_ms: int) -> None:
    time = ManagersTime()

    assert not time.heard(NOW_MS - off_ms, NOW_MS)
    assert time.ahead_ms == 0


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_a_clock_that_is_off_is_told_once(off_ms: int) -> None:
    time = ManagersTime()

    assert [time.heard(NOW_MS + beat - off_ms, NOW_MS + beat) for beat in range(BEATS)] == [True, False, False]
    assert time.ahead_ms == off_ms


def test_a_heartbeat_that_was_late_says_nothing_about_the_clock() -> None:
    time = ManagersTime()
    time.heard(NOW_MS, NOW_MS)

    assert not time.heard(NOW_MS, NOW_MS + LATE_MS)
    assert time.ahead_ms == 0


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_a_clock_that_is_set_right_is_believed_within_three_heartbeats(off_ms: int) -> None:
    time = ManagersTime()
    time.heard(NOW_MS - off_ms, NOW_MS)

    changes = [time.heard(NOW_MS + beat, NOW_MS + beat) for beat in range(BEATS)]

    assert changes.count(True) == 1
    assert time.ahead_ms == 0
