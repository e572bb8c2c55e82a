"""The wall clock jumps an hour, back or forth: nothing is lost, nothing waits for the hour to pass, all is recorded.

What is promised of single times (holds, leases, retention): `tests/contract/store/test_clock_jumps.py`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import DEPOT, ROOT, Process, Shell, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR_S = 3600
HELLO = '{"text": "hello"}'


class WrongClock:
    """A folder whose `canoa up` runs by a clock that the test sets."""

    def __init__(self, scratch: Path) -> None:
        self.shell = Shell(scratch, folder=scratch / "project", env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"})
        self.shell.folder.mkdir()
        self._said = scratch / "clock"
        self.jump(0)

    def jump(self, to_s: int) -> None:
        """So far from the right time, from now on."""
        new = self._said.with_suffix(".new")
        new.write_text(str(to_s))
        new.replace(self._said)

    def start_up(self) -> Process:
        program = [sys.executable, "-m", "tests.acceptance.shifted_clock", str(self._said)]
        up = self.shell.start(*program, "up", DEPOT, "--port", "0")
        up.wait_logged("Ctrl-C")
        return up

    def submit(self, action: str, arguments: str, *args: str) -> str:
        run = self.shell.canoa("submit", action, arguments, *args)
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    def result(self, task_id: str) -> str:
        return self.shell.canoa("result", task_id, "--wait", "20").stdout.strip()


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[WrongClock]:
    clock = WrongClock(tmp_path)
    yield clock
    clock.shell.close()


def test_what_runs_while_the_clock_jumps_is_recorded_and_what_comes_then_runs_at_once(
    clock: WrongClock, tmp_path: Path
) -> None:
    up = clock.start_up()

    for jump_s in (-HOUR_S, HOUR_S):
        folder = tmp_path / str(jump_s)
        folder.mkdir()
        held = clock.submit("depot.hold", json.dumps({"folder": str(folder)}))
        until((folder / "started").exists)
        clock.jump(jump_s)
        (folder / "release").touch()

        assert clock.result(held) == '"held"'
        assert clock.result(clock.submit("depot.echo", HELLO)) == '"hello"'
        assert clock.result(clock.submit("depot.echo", HELLO, "--after", "0.2")) == '"hello"'
    assert up.is_alive


def test_what_a_killed_up_left_is_finished_by_one_whose_clock_has_gone_back(clock: WrongClock, tmp_path: Path) -> None:
    killed = clock.start_up()
    held = clock.submit("depot.hold", json.dumps({"folder": str(tmp_path)}))
    until((tmp_path / "started").exists)
    killed.kill()

    clock.jump(-HOUR_S)
    clock.start_up()
    (tmp_path / "release").touch()

    assert clock.result(held) == '"held"'


def test_a_task_for_later_starts_when_the_clock_jumps_over_its_time(clock: WrongClock, tmp_path: Path) -> None:
    clock.start_up()
    later = clock.submit("depot.late", json.dumps({"folder": str(tmp_path)}), "--after", "1")

    clock.jump(HOUR_S)

    assert clock.result(later)
