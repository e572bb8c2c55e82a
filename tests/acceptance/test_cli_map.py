"""`canoa map`, and `canoa call` where tasks are kept: many results in order, and what a terminal shows meanwhile."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

from tests.acceptance.shell import CANOA, Shell, until

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = "".join(f'{{"text": "{number}"}}\n' for number in range(250))
MIXED = '{"text": "a"}\n{"text": 7}\n{"text": "c"}\n'


def in_folder(folder: Path) -> str:
    return json.dumps({"folder": str(folder)})


def seen_on_a_terminal(shell: Shell, *args: str, until_there: str = "") -> tuple[str, subprocess.Popen[bytes]]:
    """What a person reads on stderr, until `until_there` is part of it or the program ends."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(CANOA), *args], cwd=shell.folder, env={**shell.env, "TERM": "xterm"}, stderr=theirs, stdout=subprocess.PIPE
    )
    os.close(theirs)
    watchdog = threading.Timer(30, process.kill)
    watchdog.start()
    seen = b""
    try:
        while not until_there or until_there.encode() not in seen:
            seen += os.read(ours, 10_000)
    except OSError:  # the other end is closed
        pass
    watchdog.cancel()
    threading.Thread(target=_drain, args=(ours,), daemon=True).start()
    return seen.decode(), process


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 10_000):
            pass
    except OSError:
        os.close(descriptor)


# --- map ----------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_lines(keeping: Shell, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(TEXTS)

    run = keeping.canoa("map", "depot.echo", str(tmp_path / "texts.jsonl"))
    narrow = keeping.canoa("map", "depot.echo", "-", "--in-flight", "3", stdin=TEXTS)

    assert (run.returncode, run.stderr) == (0, "")
    assert [json.loads(line) for line in run.stdout.splitlines()] == [str(number) for number in range(250)]
    assert narrow.stdout == run.stdout


def test_one_that_fails_stops_no_other_and_is_named_on_stderr(keeping: Shell) -> None:
    run = keeping.canoa("map", "depot.echo", "-", stdin=MIXED)

    assert (run.returncode, run.stdout) == (1, '"a"\n"c"\n')
    assert "number 2 (" in run.stderr
    assert "error: 1 failed" in run.stderr


def test_with_json_every_end_is_an_object(keeping: Shell) -> None:
    run = keeping.canoa("map", "depot.fail", "-", "--json", stdin='{"reason": "one"}\n{"reason": "two"}\n')

    first, second = (json.loads(line) for line in run.stdout.splitlines())
    assert run.returncode == 1
    assert (first["number"], first["error"]["message"]) == (1, "ValueError: one")
    assert (second["number"], second["error"]["type"]) == (2, "ActionFailed")


def test_a_map_that_cannot_begin_is_wrong_use(keeping: Shell) -> None:
    for args in (["depot.nowhere", "-"], ["depot.echo", "nowhere.jsonl"], ["echo", "-"]):
        run = keeping.canoa("map", *args, stdin=TEXTS)

        assert (run.returncode, run.stdout) == (2, "")
        assert "Traceback" not in run.stderr


def test_ctrl_c_ends_a_map(keeping: Shell, tmp_path: Path) -> None:
    (tmp_path / "holds.jsonl").write_text(in_folder(tmp_path))
    mapping = keeping.start(str(CANOA), "map", "depot.hold", str(tmp_path / "holds.jsonl"))
    until((tmp_path / "started").exists)

    mapping.send(signal.SIGINT)

    assert (mapping.wait(), mapping.output()) == (130, "")
    assert "what was submitted goes on" in mapping.said
    (tmp_path / "release").touch()


def test_a_terminal_shows_how_many_are_done(keeping: Shell, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(TEXTS)

    seen, process = seen_on_a_terminal(keeping, "map", "depot.echo", str(tmp_path / "texts.jsonl"))

    assert "250/250" in seen
    assert process.communicate()[0].count(b"\n") == 250
    assert process.returncode == 0


# --- call ---------------------------------------------------------------------------------------------


def test_a_call_prints_the_result_alone(keeping: Shell) -> None:
    called = keeping.canoa("call", "depot.echo", '{"text": "hello"}')

    assert (called.returncode, called.stdout, called.stderr) == (0, '"hello"\n', "")


def test_a_call_that_fails_is_exit_1_with_its_words(keeping: Shell) -> None:
    called = keeping.canoa("call", "depot.fail", '{"reason": "no stock"}')

    assert (called.returncode, called.stdout, called.stderr) == (1, "", "error: ValueError: no stock\n")


def test_an_interrupted_call_names_the_task(keeping: Shell, tmp_path: Path) -> None:
    calling = keeping.start(str(CANOA), "call", "depot.hold", in_folder(tmp_path), "--cancel-on-interrupt")
    assert "0 waiting, 1 workers" in calling.wait_logged("waiting for depot.hold")

    calling.send(signal.SIGINT)

    assert (calling.wait(), calling.output()) == (130, "")
    assert "(depot.hold): it was cancelled" in calling.said
    assert "Traceback" not in calling.said


def test_a_terminal_shows_how_far_the_task_is(keeping: Shell, tmp_path: Path) -> None:
    task_id = keeping.canoa("submit", "depot.paint", in_folder(tmp_path)).stdout.strip()

    seen, process = seen_on_a_terminal(keeping, "result", task_id, "--follow", until_there="first coat")

    assert "40 %" in seen
    (tmp_path / "release").touch()
    assert process.communicate(timeout=30)[0] == b'"held"\n'
