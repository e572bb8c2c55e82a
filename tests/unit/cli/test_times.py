"""Times have the unit that reads best."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.cli.test_story import TASK

from canoa.cli.times import ago, shown_ms, shown_took


def test_times_have_the_unit_that_reads_best() -> None:
    assert [shown_ms(ms) for ms in (None, 0, 999, 1_000, 59_990, 61_000)] == [
        "-",
        "0 ms",
        "999 ms",
        "1.00 s",
        "59.99 s",
        "1 min 1 s",
    ]


def test_a_task_that_has_not_ended_took_nothing_yet() -> None:
    assert [shown_took(replace(TASK, took_s=took_s)) for took_s in (None, 0.0, 0.0123, 75.0)] == [
        "-",
        "0 ms",
        "12 ms",
        "1 min 15 s",
    ]


def test_ages_have_the_unit_that_reads_best() -> None:
    assert [ago(each) for each in (-5, 0.4, 1, 119, 120, 7_200, 200_000)] == [
        "now",
        "now",
        "1 s ago",
        "119 s ago",
        "2 min ago",
        "2 h ago",
        "2 d ago",
    ]
