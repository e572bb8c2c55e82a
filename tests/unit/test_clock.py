"""Time as an argument: the real clock, and the one that tests move."""

from __future__ import annotations

import time

import pytest

from canoa.clock import SystemClock
from canoa.errors import SettingError
from canoa.testing import VirtualClock


def test_the_system_clock_shows_the_machines_time() -> None:
    clock = SystemClock()
    before = time.time(), time.monotonic()

    shown = clock.now_s(), clock.monotonic_s()

    assert before[0] <= shown[0] <= time.time()
    assert before[1] <= shown[1] <= time.monotonic()


def test_a_virtual_clock_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock(now_s=1000.0)
    assert (clock.now_s(), clock.monotonic_s()) == (1000.0, 0.0)

    clock.advance(2.5)

    assert (clock.now_s(), clock.monotonic_s()) == (1002.5, 2.5)


def test_virtual_time_does_not_go_back() -> None:
    with pytest.raises(SettingError, match="-1"):
        VirtualClock().advance(-1)
