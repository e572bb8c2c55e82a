"""The units in `deploy/systemd` are well-formed, and what they start runs with the environment they show."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from configparser import ConfigParser
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import CANOA, DEPOT, ROOT, Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNITS = ROOT / "deploy" / "systemd"
WORKER, RECORDER, UP = UNITS / "canoa-worker@.service", UNITS / "canoa-recorder.service", UNITS / "canoa-up.service"
MANAGER = UNITS / "canoa-manager.service"
INSTALLED = "/opt/canoa/bin/canoa"

every_unit = pytest.mark.parametrize("unit", [WORKER, RECORDER, MANAGER, UP], ids=lambda unit: unit.stem)


def service(unit: Path) -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # as systemd reads them
    parser.read(unit)
    return dict(parser["Service"])


def command(unit: Path) -> list[str]:
    program, *arguments = shlex.split(service(unit)["ExecStart"])
    assert program == INSTALLED
    return [str(CANOA), *("0" if each == "8420" else each for each in arguments)]  # a port that is free


def settings(unit: Path) -> set[str]:
    """What the example of its environment file sets."""
    example = UNITS / f"{unit.stem.removeprefix('canoa-').removesuffix('@')}.env.example"
    lines = example.read_text().splitlines()
    return {line.partition("=")[0] for line in lines if not line.startswith("#")}


def run_as_installed(shell: Shell, unit: Path, environment: dict[str, str], *, until: str) -> int:
    """Its exit code after a SIGTERM, once it said `until`."""
    assert settings(unit) <= environment.keys()
    process = shell.start(*command(unit), **environment)
    process.wait_logged(until)
    process.send(signal.SIGTERM)
    return process.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, folder=tmp_path)
    shell.env["PYTHONPATH"] += f":{ROOT}"  # where the unit's environment has the app installed
    yield shell
    shell.close()


@pytest.mark.rabbitmq
def test_the_worker_of_the_unit_runs_and_drains(shell: Shell, rabbit_url: str) -> None:
    environment = {"CANOA_APP": DEPOT, "CANOA_BROKER": rabbit_url}

    assert run_as_installed(shell, WORKER, environment, until="worker_ready") == 0


@pytest.mark.rabbitmq
def test_the_recorder_of_the_unit_runs_and_stops(shell: Shell, rabbit_url: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/canoa.db"
    environment = {"CANOA_BROKER": rabbit_url, "CANOA_STORE": store, "CANOA_API_TOKEN": "t" * 24}

    assert run_as_installed(shell, RECORDER, environment, until="recorder_ready") == 0


@pytest.mark.rabbitmq
def test_the_manager_of_the_unit_runs_and_stops(shell: Shell, rabbit_url: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/canoa.db"
    environment = {"CANOA_BROKER": rabbit_url, "CANOA_STORE": store, "CANOA_API_TOKEN": "t" * 24}

    assert run_as_installed(shell, MANAGER, environment, until="manager_ready") == 0


def test_the_embedded_app_of_the_unit_runs_and_drains(shell: Shell) -> None:
    assert run_as_installed(shell, UP, {"CANOA_APP": DEPOT}, until="Ctrl-C") == 0


@every_unit
def test_a_stop_waits_for_longer_than_the_drain(unit: Path) -> None:
    arguments = command(unit)
    drain_s = float(arguments[arguments.index("--drain") + 1]) if "--drain" in arguments else 0.0

    assert float(service(unit)["TimeoutStopSec"]) >= drain_s + 10


@every_unit
def test_a_unit_is_hardened_and_comes_back_by_itself(unit: Path) -> None:
    wanted = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "CapabilityBoundingSet": ""}

    found = service(unit)

    assert found.items() >= wanted.items()
    assert (found["User"], found["Restart"], found["UMask"]) == ("canoa", "on-failure", "0077")
    assert found["WorkingDirectory"] == f"%S/{found['StateDirectory']}"


@every_unit
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name.replace("@", "@shop")
    copy.write_text(unit.read_text().replace(INSTALLED, str(CANOA)))

    run = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)

    assert (run.returncode, run.stderr) == (0, "")
