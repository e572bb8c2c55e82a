"""The shortened tortures: workers, `canoa up` and managers are killed while they hold work; every result arrives."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.acceptance.shell import ROOT


@pytest.mark.rabbitmq
@pytest.mark.timeout(
    300
)  # a minute of kills; on a machine that has other things to do the last results take their time
def test_no_result_is_missing_after_fifty_kills_of_workers_that_hold_work() -> None:
    command = [sys.executable, "-m", "tests.torture.pool", "--minutes", "0.9", "--kills", "50"]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=290)

    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("50 kills of workers")


def test_no_accepted_task_is_lost_when_canoa_up_is_killed_eight_times_under_load() -> None:
    command = [sys.executable, "-m", "tests.torture.keep", "--kills", "8"]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)

    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("8 kills, ")
    assert run.stdout.rstrip().endswith("0 promises broken")


@pytest.mark.rabbitmq
@pytest.mark.parametrize("managers", ["alone", pytest.param("two", marks=pytest.mark.postgres)])
@pytest.mark.timeout(300)  # half a minute; longer on a machine that has other things to do
def test_no_accepted_task_is_lost_and_nothing_is_left_when_managers_are_killed_five_times_under_load(
    managers: str,
) -> None:
    command = [sys.executable, "-m", "tests.torture.manager", "--kills", "5"]
    command += ["--alone"] if managers == "alone" else []

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=290)

    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("5 kills, ")
    assert run.stdout.rstrip().endswith("0 promises broken")
