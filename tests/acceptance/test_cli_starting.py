"""Stopped in the first moments, while a program is still imported: it has nothing to drain, and ends well."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import CANOA, Process, Shell

if TYPE_CHECKING:
    from pathlib import Path

SLOW = """
import sys, time
print("importing", file=sys.stderr, flush=True)
time.sleep(60)
"""


def importing(shell: Shell, folder: Path, module: str, *command: str) -> Process:
    """A `canoa` that is just about to import `module`, which takes long."""
    (folder / f"{module}.py").write_text(SLOW)
    program = shell.start(str(CANOA), *command, PYTHONPATH=f"{folder}:{shell.env['PYTHONPATH']}")
    program.wait_logged("importing")
    return program


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("module", ["typer", "slow_app"], ids=["its own code", "the app"])
def test_a_worker_that_is_stopped_while_code_is_imported_ends_well_and_quietly(
    offline: Shell, tmp_path: Path, module: str, number: signal.Signals
) -> None:
    worker = importing(offline, tmp_path, module, "worker", "slow_app:app")

    worker.send(number)

    assert worker.wait() == 0
    assert worker.said == "importing\n"


def test_a_command_that_was_to_end_by_itself_does_not_end_well_when_it_is_stopped(
    offline: Shell, tmp_path: Path
) -> None:
    command = importing(offline, tmp_path, "typer", "call", "depot.echo")

    command.send(signal.SIGTERM)

    assert command.wait() == -signal.SIGTERM
