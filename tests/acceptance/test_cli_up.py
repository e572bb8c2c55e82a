"""`canoa up`: a worker and its API in one process, and a newcomer who does what it says next."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import CANOA, DEPOT, ROOT, Process, Shell

from canoa.testing import free_port
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOP = "examples.shop:app"

WITHOUT_A_SERVER = """
import sys
sys.modules["uvicorn"] = None
from canoa.cli import main
main()
"""


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[Shell]:
    """In a folder of its own, where it keeps its store; no broker is named."""
    folder = tmp_path / "project"
    folder.mkdir()
    shell = Shell(tmp_path, folder=folder, env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"})
    yield shell
    shell.close()


def start_up(shell: Shell, *args: str, program: str = str(CANOA)) -> tuple[Process, str]:
    """Once it is ready: the process, and the API's address."""
    return start_up_of(shell, SHOP, *args, program=program)


def start_up_of(shell: Shell, target: str, *args: str, program: str = str(CANOA)) -> tuple[Process, str]:
    process = shell.start(program, "up", target, "--port", "0", *args)
    said = process.wait_logged("Ctrl-C")
    address = re.search(r"http://\S+:\d+", said)
    assert address is not None, said
    return process, address[0]


def get(url: str, host: str | None = None, *, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} | ({"Host": host} if host else {})
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


# --- The API ------------------------------------------------------------------------------------------


def test_the_api_says_that_it_lives_and_what_it_counts(offline: Shell) -> None:
    process, url = start_up(offline)
    token = re.search(r"token (\S+)\)", process.said)
    assert token is not None, process.said

    status, health = get(f"{url}/healthz")
    assert status == 200
    assert json.loads(health).items() >= {"status": "ok", "app": "shop", "in_progress": 0}.items()

    assert get(f"{url}/metrics")[0] == 401
    status, metrics = get(f"{url}/metrics", token=token[1])
    assert status == 200
    assert 'canoa_actions_total{action="shop.resize",layer="CLOUD",outcome="ok"} 0.0' in metrics


def test_a_page_under_another_name_cannot_reach_the_api(offline: Shell) -> None:
    _, url = start_up(offline, "--allow-host", "depot.example")
    port = url.rpartition(":")[2]

    assert get(f"{url}/healthz", host="evil.example")[0] == 400
    for name in (f"localhost:{port}", f"{LOOPBACK}:{port}", "[::1]", "depot.example"):
        assert get(f"{url}/healthz", host=name)[0] == 200, name


# --- Starting and stopping ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_and_in_few_calm_words(offline: Shell, number: signal.Signals) -> None:
    process, _ = start_up(offline)

    process.send(number)

    assert (process.wait(), process.output()) == (0, "")
    said = process.said.splitlines()
    assert said[-2:] == ["stopping: running actions may finish", "stopped"]
    assert len(said) <= 10
    for alarming in ("error", "warning", "Traceback", "exception"):
        assert alarming.lower() not in process.said.lower()


def test_a_taken_port_is_told_with_the_remedy(offline: Shell) -> None:
    with socket.create_server((LOOPBACK, port := free_port())):
        run = offline.canoa("up", SHOP, "--port", str(port))

    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == (
        f"error: port {port} on {LOOPBACK} is taken by another program; end that, or choose another --port\n"
    )


def test_an_address_that_is_not_ours_is_wrong_use(offline: Shell) -> None:
    run = offline.canoa("up", SHOP, "--host", "192.0.2.1")

    assert (run.returncode, run.stdout) == (2, "")
    assert "cannot listen at 192.0.2.1" in run.stderr


def test_without_the_server_extra_it_names_the_command_to_install_it(offline: Shell) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_SERVER, "up", SHOP],
        cwd=ROOT,
        env=offline.env,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "error: `canoa up` needs uvicorn; install it with: pip install 'canoa[server]'\n"


# --- What to do next ----------------------------------------------------------------------------------


def next_steps(said: str) -> list[str]:
    return [line.strip() for line in said.splitlines() if line.startswith(" " * 9)]


def test_the_next_steps_name_the_program_so_that_another_shell_in_the_folder_finds_it(
    tmp_path: Path, offline: Shell
) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(CANOA, tmp_path / ".venv" / "bin" / "canoa")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    offline.folder = tmp_path

    by_path, _ = start_up(offline, program=".venv/bin/canoa")
    by_path.send(signal.SIGTERM)
    by_path.wait()
    offline.env["PATH"] += f":{tmp_path}/.venv/bin"
    by_name, _ = start_up(offline, program=str(tmp_path / ".venv/bin/canoa"))

    assert next_steps(by_path.said)[-1] == """.venv/bin/canoa call shop.resize '{"path": "path"}'"""
    assert next_steps(by_name.said)[-1] == """canoa call shop.resize '{"path": "path"}'"""


def test_the_next_step_works_when_pasted_into_another_shell(offline: Shell) -> None:
    process, _ = start_up(offline)
    (step,) = next_steps(process.said)

    run = subprocess.run(
        ["/bin/sh", "-c", step], cwd=offline.folder, env=offline.env, capture_output=True, text=True, timeout=30
    )

    assert (run.returncode, run.stdout) == (0, '"path-100.png"\n')


# --- What was accepted ---------------------------------------------------------------------------------


def test_what_was_accepted_before_a_kill_is_finished_after_the_next_start(offline: Shell, tmp_path: Path) -> None:
    hold = json.dumps({"folder": str(tmp_path)})
    process, _ = start_up_of(offline, DEPOT)
    submitted = offline.canoa("submit", "depot.hold", hold)
    assert submitted.returncode == 0, submitted.stderr
    process.kill()

    again, _ = start_up_of(offline, DEPOT)
    (tmp_path / "release").touch()
    result = offline.canoa("result", submitted.stdout.strip(), "--wait", "20")

    assert result.returncode == 0, result.stderr
    assert "what was accepted before and has not ended: 1" in again.said


def test_what_was_accepted_is_finished_also_when_the_clock_was_set_back_meanwhile(
    offline: Shell, tmp_path: Path
) -> None:
    running, _ = start_up_of(offline, DEPOT)
    task_id = offline.canoa("submit", "depot.hold", json.dumps({"folder": str(tmp_path)})).stdout.strip()
    running.kill()
    with closing(sqlite3.connect(offline.folder / ".canoa" / "canoa.db")) as store:
        store.execute(
            "UPDATE tasks SET submitted_ms = submitted_ms + 3600000"
        )  # an hour ahead of the clock that is now
        store.commit()

    start_up_of(offline, DEPOT)
    (tmp_path / "release").touch()

    assert offline.canoa("result", task_id, "--wait", "20").stdout == '"held"\n'


def test_a_task_that_kills_its_process_again_and_again_is_put_aside_and_the_others_finish(offline: Shell) -> None:
    process, _ = start_up_of(offline, DEPOT)
    deadly = offline.canoa("submit", "depot.die").stdout.strip()
    process.wait()
    for _ in range(2):  # it runs once more in company, then alone
        offline.start(str(CANOA), "up", DEPOT, "--port", "0").wait()

    last, _ = start_up_of(offline, DEPOT)
    harmless = offline.canoa("call", "depot.echo", '{"text": "alive"}')

    told = offline.canoa("result", deadly, "--wait", "10")
    assert (told.returncode, harmless.stdout) == (1, '"alive"\n')
    assert "it was running when its process ended, 3 times" in told.stderr
    assert deadly in offline.canoa("dead", "list").stdout
    assert last.is_alive


def test_a_second_one_in_the_same_folder_says_who_is_there(offline: Shell) -> None:
    process, _ = start_up(offline)

    second = offline.canoa("up", SHOP, "--port", "0")

    assert (second.returncode, second.stdout) == (2, "")
    assert f"`canoa up {SHOP}` (process {process.pid}, since " in second.stderr


def test_a_second_one_on_the_same_store_in_another_folder_says_whose_it_is(offline: Shell, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'shared.db'}"
    first, _ = start_up(offline, "--store", store)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = Shell(tmp_path, folder=elsewhere, env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"})

    second = other.canoa("up", SHOP, "--port", "0", "--store", store)
    first.kill()
    start_up(other, "--store", store)
    other.close()

    assert (second.returncode, second.stdout) == (2, "")
    assert f"shared.db belongs to the memory broker of process {first.pid} on " in second.stderr


@pytest.mark.rabbitmq
def test_with_a_real_broker_the_next_step_is_a_call(offline: Shell, rabbit_url: str) -> None:
    online = offline
    online.env["CANOA_BROKER"] = rabbit_url
    process, _ = start_up(online)

    (step,) = next_steps(process.said)
    run = subprocess.run(
        ["/bin/sh", "-c", step], cwd=online.folder, env=online.env, capture_output=True, text=True, timeout=30
    )

    assert (run.returncode, run.stdout) == (0, '"path-100.png"\n')
    assert "guest:guest" not in process.said
