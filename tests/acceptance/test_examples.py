"""The examples run as they stand, with nothing but the package."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from examples.continuum.plan import plan
from tests.acceptance.shell import CANOA, ROOT, Shell
from tests.acceptance.terminal import normalised

from canoa.execution.plan_files import plan_from_text

if TYPE_CHECKING:
    from pathlib import Path


def test_the_first_example_is_short_and_runs_with_an_empty_environment() -> None:
    first = ROOT / "examples" / "first.py"

    run = subprocess.run([sys.executable, "-W", "error", first], env={}, capture_output=True, text=True, timeout=30)

    assert (run.returncode, run.stderr) == (0, "")
    assert sorted(ast.literal_eval(run.stdout)) == ["a.png is 100 wide", "b.png is 100 wide"]
    assert len(first.read_text().splitlines()) < 20


def test_the_readme_shows_the_first_example_as_it_is() -> None:
    readme = (ROOT / "README.md").read_text()

    shown = readme.split("```python\n", 1)[1].split("```", 1)[0]

    assert shown == (ROOT / "examples" / "first.py").read_text()


def test_the_readme_shows_what_make_up_says(tmp_path: Path) -> None:
    shown = (ROOT / "README.md").read_text().split("```text\n", 1)[1].split("```", 1)[0]
    shell = Shell(tmp_path, folder=tmp_path)
    shell.env["PYTHONPATH"] += f":{ROOT}"

    said = shell.start(str(CANOA), "up", "examples.shop:app", "--port", "0").wait_logged("Ctrl-C")

    shell.close()
    assert normalised(said.replace(str(CANOA), ".venv/bin/canoa")) == normalised(shown)


# --- A manager in one's own process -------------------------------------------------------------------


@pytest.mark.parametrize("broker", ["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def test_plans_and_routed_actions_fit_into_one_file(
    broker: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    real = broker == "rabbitmq" and {
        "CANOA_BROKER": str(request.getfixturevalue("rabbit_url")),
        "CANOA_STORE": f"sqlite:///{tmp_path}/plant.db",
    }
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "one_file.py")]

    run = subprocess.run(command, cwd=tmp_path, env=real or {}, capture_output=True, text=True, timeout=60)

    assert (run.returncode, run.stderr) == (0, "")
    page = (ROOT / "docs" / "howto" / "one-process.md").read_text()
    shown = page.split("    $ python examples/one_file.py\n", 1)[1].split("\n\n", 1)[0]
    assert run.stdout.splitlines() == [line.strip() for line in shown.splitlines()]


def test_the_page_on_one_process_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "howto" / "one-process.md").read_text()

    shown = page.split("```python\n", 1)[1].split("```", 1)[0]

    assert shown == (ROOT / "examples" / "one_file.py").read_text()


# --- The continuum ------------------------------------------------------------------------------------


def test_the_continuum_runs_with_one_command_in_one_process_and_without_a_broker() -> None:
    run = continuum()

    assert_the_story_of_three_nodes(run)


@pytest.mark.rabbitmq
def test_the_continuum_runs_with_one_command_over_rabbitmq_as_processes(rabbit_url: str) -> None:
    run = continuum("--broker", rabbit_url)

    assert_the_story_of_three_nodes(run)


@pytest.mark.mosquitto
def test_the_continuum_shows_how_work_moves_when_the_edge_node_on_mqtt_stops_and_comes_back() -> None:
    assert_the_story_of_a_move(continuum("--migrate"))


@pytest.mark.mosquitto
@pytest.mark.rabbitmq
def test_the_continuum_shows_how_work_moves_over_rabbitmq_too(rabbit_url: str) -> None:
    assert_the_story_of_a_move(continuum("--migrate", "--broker", rabbit_url))


def assert_the_story_of_a_move(run: subprocess.CompletedProcess[str]) -> None:
    assert (run.returncode, run.stderr) == (0, "")
    assert re.findall(r"^--- (.*)$", run.stdout, re.MULTILINE) == [
        "meter-7 is at the edge, on MQTT",
        "meter-7 was killed: its last will said so, and the fog reads the meter",
        "meter-7 is back",
    ]
    read_by = re.findall(r"─ fetch_data +ok .*\n[ │]+1\. (\S+) +ok ", run.stdout)
    assert read_by == ["meter-7", "gateway-2", "meter-7"]


def continuum(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "examples.continuum", *args]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=90)


def assert_the_story_of_three_nodes(run: subprocess.CompletedProcess[str]) -> None:
    assert (run.returncode, run.stderr) == (0, "")
    told = run.stdout.splitlines()
    assert re.match(r"task [0-9a-f]{32}  power-factor  ok, took", told[0])
    ran = re.findall(r"─ (\w+) +ok .*\n[ │]+1\. (\S+) +ok ", run.stdout)
    assert ran == [("fetch_data", "meter-7"), ("power_factor", "gateway-2"), ("report", "office-1")]
    assert told[-1] == "pump 3 runs at a power factor of 0.825: a capacitor bank would pay off"


def test_the_page_on_the_continuum_shows_the_plan_as_it_is() -> None:
    page = (ROOT / "docs" / "concepts" / "continuum.md").read_text()
    code = (ROOT / "examples" / "continuum" / "plan.py").read_text()

    shown = page.split("```python\n", 1)[1].split("```", 1)[0]

    assert code.endswith(f"\n{shown}")


def test_the_plan_file_of_the_continuum_says_the_same_as_the_plan_in_python() -> None:
    text = (ROOT / "examples" / "continuum" / "plan.yaml").read_text()

    assert plan_from_text(text) == plan.build()
