"""`canoa worker --reload`: the code is changed, the worker follows, and nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.acceptance.shell import CANOA, Process, Shell, until
from tests.integration.routed.bare_manager import managing

from canoa import Canoa
from canoa.vocabulary import Layer
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from pathlib import Path

APP = """
import asyncio
from pathlib import Path
from canoa import Canoa

app = Canoa("corner")


@app.action()
async def word() -> str:
    return "{word}"


@app.action()
async def hold() -> str:
    Path("started").touch()
    while not Path("release").exists():
        await asyncio.sleep(0.02)
    return "{word}"
"""

WITHOUT_WATCHFILES = """
import sys
sys.modules["watchfiles"] = None
from canoa.cli import main
main()
"""


class Corner:
    """An app in a folder of its own, and its worker with `--reload`."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        shell.folder = self._folder = folder
        self.shell = shell
        self.says("first")

    def says(self, word: str) -> None:
        self.write(APP.replace("{word}", word))

    def write(self, code: str) -> None:
        (self._folder / "corner.py").write_text(code)

    def start(self, *args: str) -> Process:
        return self.shell.start(str(CANOA), "worker", "corner:app", "--reload", "--log-format", "json", *args)

    def start_ready(self) -> Process:
        worker = self.start()
        worker.wait_logged("worker_ready")
        return worker

    def word(self) -> str:
        return self.shell.canoa("call", "corner.word", "--timeout", "20").stdout


def children_of(process: Process) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def times_logged(process: Process, event: str) -> int:
    return sum(each["event"] == event for each in process.events())


@pytest.fixture
def corner(online: Shell, tmp_path: Path) -> Corner:
    return Corner(online, tmp_path)


def test_changed_code_runs_without_a_restart_by_hand(corner: Corner) -> None:
    worker = corner.start_ready()
    assert corner.word() == '"first"\n'

    corner.says("second")

    until(lambda: times_logged(worker, "worker_ready") == 2)
    assert corner.word() == '"second"\n'
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_what_runs_may_finish_before_the_new_code_takes_over(corner: Corner, tmp_path: Path) -> None:
    worker = corner.start_ready()
    caller = corner.shell.start(str(CANOA), "call", "corner.hold")
    until((tmp_path / "started").exists)

    corner.says("second")
    worker.wait_logged("worker_draining")
    (tmp_path / "release").touch()

    assert (caller.wait(), caller.output()) == (0, '"first"\n')
    until(lambda: times_logged(worker, "worker_ready") == 2)


def test_a_syntax_error_is_said_and_the_next_change_mends_it(corner: Corner) -> None:
    worker = corner.start_ready()

    corner.write("def broken(:\n")
    assert "SyntaxError" in worker.wait_logged("worker_ended")
    assert worker.is_alive
    corner.says("mended")

    until(lambda: times_logged(worker, "worker_ready") == 2)
    assert corner.word() == '"mended"\n'


def test_a_syntax_error_at_the_start_is_waited_out_too(corner: Corner) -> None:
    corner.write("def broken(:\n")
    worker = corner.start()
    worker.wait_logged("worker_ended")

    corner.says("mended")

    worker.wait_logged("worker_ready")
    assert corner.word() == '"mended"\n'


def test_a_file_that_is_no_code_changes_nothing(corner: Corner, tmp_path: Path) -> None:
    worker = corner.start_ready()

    (tmp_path / "notes.txt").write_text("not code")
    corner.says("second")

    until(lambda: times_logged(worker, "worker_ready") == 2)
    (change,) = [each for each in worker.events() if each["event"] == "code_changed"]
    assert change["files"] == ["corner.py"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_worker_drains(corner: Corner, tmp_path: Path, number: signal.Signals) -> None:
    worker = corner.start_ready()
    caller = corner.shell.start(str(CANOA), "call", "corner.hold")
    until((tmp_path / "started").exists)

    worker.send(number)
    worker.wait_logged("worker_draining")
    (tmp_path / "release").touch()

    assert (caller.wait(), caller.output()) == (0, '"first"\n')
    assert worker.wait() == 0
    assert "Traceback" not in worker.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_waits_for_a_change_ends_it_with_0(corner: Corner, number: signal.Signals) -> None:
    corner.write("def broken(:\n")
    worker = corner.start()
    worker.wait_logged("worker_ended")

    worker.send(number)

    assert worker.wait() == 0


def test_killed_it_leaves_no_worker_behind(corner: Corner) -> None:
    worker = corner.start_ready()
    children = children_of(worker)
    assert children

    worker.kill()

    assert psutil.wait_procs(children, timeout=20)[1] == []


def test_stopped_it_leaves_no_process_behind(corner: Corner) -> None:
    worker = corner.start_ready()
    children = children_of(worker)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    assert not [child for child in children if child.is_running()]


@pytest.mark.parametrize(
    ("args", "says"),
    [(["nowhere:app"], "no module 'nowhere'"), (["corner:app", "--broker", "memory://"], "CANOA_BROKER")],
)
def test_wrong_use_is_not_waited_out(offline: Shell, tmp_path: Path, args: list[str], says: str) -> None:
    corner = Corner(offline, tmp_path)

    worker = corner.shell.canoa("worker", "--reload", *args)

    assert (worker.returncode, worker.stdout) == (2, "")
    assert says in worker.stderr


def test_without_watchfiles_it_names_the_command_to_install_it(offline: Shell) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_WATCHFILES, "worker", "corner:app", "--reload"],
        env=offline.env,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == (
        "error: `canoa worker --reload` needs watchfiles; install it with: pip install 'canoa[server]'\n"
    )


async def test_after_a_change_the_node_registers_its_new_actions(corner: Corner, rabbit_url: str) -> None:
    async with managing(Canoa("beside", broker=rabbit_url)) as manager:
        corner.start("--node-id", "gw-7", "--layer", "edge", "--site", "natal")
        before = await manager.registration()

        corner.write(APP.replace("{word}", "second").replace("async def hold", "async def keep"))

        left = await manager.registration()
        after = await manager.registration()
    assert (before.body.layer, before.headers[sapparchi.SITE]) == (Layer.EDGE, "natal")
    assert before.body.actions == ["urn:sapparchi:Action:corner.word", "urn:sapparchi:Action:corner.hold"]
    assert left.body.actions == []
    assert after.body.actions == ["urn:sapparchi:Action:corner.word", "urn:sapparchi:Action:corner.keep"]
    assert after.headers[sapparchi.INSTANCE] != before.headers[sapparchi.INSTANCE]
