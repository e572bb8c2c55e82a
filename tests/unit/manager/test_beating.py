"""Heartbeats come every five seconds, and every tenth asks all nodes to register."""

from __future__ import annotations

from canoa.manager.heartbeat import Beat, next_beat


def test_the_first_comes_at_once_and_the_others_every_five_seconds() -> None:
    assert [next_beat(at_s).at_s for at_s in (0.0, 0.1, 5.0, 5.1, 49.9)] == [0.0, 5.0, 5.0, 10.0, 50.0]


def test_every_tenth_is_forced() -> None:
    beats = [next_beat(5.0 * number) for number in range(30)]

    assert [number for number, beat in enumerate(beats, start=1) if beat.is_forced] == [10, 20, 30]


def test_beats_that_were_missed_are_left_out() -> None:
    assert next_beat(3_601.0) == Beat(3_605.0, is_forced=False)
