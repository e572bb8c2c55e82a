"""`canoa init`: what it writes works as it is, and what was there before stays."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import CANOA, Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shell(offline: Shell, tmp_path: Path) -> Shell:
    offline.folder = tmp_path
    return offline


def run_its_tests(shell: Shell, project: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=project, env=shell.env, capture_output=True, text=True, timeout=60)


def test_the_tests_of_a_new_project_pass(shell: Shell, tmp_path: Path) -> None:
    wrote = shell.canoa("init", "paint-shop")

    assert (wrote.returncode, wrote.stdout) == (0, "")
    tested = run_its_tests(shell, tmp_path / "paint-shop")
    assert "3 passed" in tested.stdout, tested.stdout + tested.stderr


def test_the_tests_of_a_new_project_need_no_broker_even_where_one_is_named(shell: Shell, tmp_path: Path) -> None:
    shell.canoa("init", "shop")
    shell.env["CANOA_BROKER"] = "amqp://127.0.0.1:1/"

    assert "3 passed" in run_its_tests(shell, tmp_path / "shop").stdout


@pytest.mark.rabbitmq
def test_the_actions_of_a_new_project_can_be_called(online: Shell, tmp_path: Path) -> None:
    online.folder = tmp_path
    online.canoa("init", ".", "--name", "Paint Shop")
    online.start(str(CANOA), "worker", "paint_shop:app").wait_logged("worker_ready")

    called = online.canoa("call", "paint_shop.greet", '{"name": "Ana"}')
    counted = online.canoa("call", "paint_shop.count_primes", '{"limit": 100}')

    assert (called.returncode, called.stdout) == (0, '"Hello, Ana!"\n')
    assert (counted.returncode, counted.stdout) == (0, "25\n")


def test_a_new_project_is_up_at_once_and_answers_without_a_broker(shell: Shell, tmp_path: Path) -> None:
    said = shell.canoa("init", "shop").stderr
    shell.folder = tmp_path / "shop"
    _, up, call = [line.strip().partition("  #")[0].split(maxsplit=3) for line in said.splitlines()[2:]]

    shell.start(str(CANOA), *up[1:], "--port", "0").wait_logged("Ctrl-C")
    called = shell.canoa(*call[1:3], call[3].strip("' "))

    assert (called.returncode, called.stdout) == (0, '"Hello, Ana!"\n')


def test_the_next_commands_are_said_and_json_names_the_files(shell: Shell, tmp_path: Path) -> None:
    said = shell.canoa("init", "shop").stderr
    wrote = shell.canoa("init", "depot", "--json")

    assert "cd shop\n" in said
    assert "up shop:app\n" in said
    told = json.loads(wrote.stdout)
    assert (told["app"], told["target"]) == ("depot", "depot:app")
    assert sorted(told["files"]) == sorted(path.name for path in (tmp_path / "depot").iterdir())


def test_nothing_is_overwritten_and_nothing_is_half_written(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "README.md").write_text("mine")

    wrote = shell.canoa("init", "shop")

    assert (wrote.returncode, wrote.stdout) == (2, "")
    assert "README.md in" in wrote.stderr
    assert [path.read_text() for path in (tmp_path / "shop").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "module"), [("email", "email_app"), ("class", "class_app"), ("Canoa", "canoa_app"), ("a--b.c", "a_b_c")]
)
def test_a_module_hides_no_other(shell: Shell, name: str, module: str) -> None:
    wrote = shell.canoa("init", "new", "--name", name, "--json")

    assert json.loads(wrote.stdout)["target"] == f"{module}:app"


@pytest.mark.parametrize("name", ["7", "...", "x" * 61])
def test_a_name_that_cannot_be_used_is_wrong_use(shell: Shell, tmp_path: Path, name: str) -> None:
    wrote = shell.canoa("init", "new", "--name", name)

    assert wrote.returncode == 2
    assert "--name shop" in wrote.stderr
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_wrong_use(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    wrote = shell.canoa("init", "file/shop")

    assert wrote.returncode == 2
    assert "name another folder" in wrote.stderr
    assert "Traceback" not in wrote.stderr


@pytest.mark.parametrize("is_uncommented", [False, True])
def test_the_settings_of_a_new_project_are_valid_and_so_are_those_it_suggests(
    shell: Shell, tmp_path: Path, is_uncommented: bool
) -> None:
    shell.canoa("init", ".", "--name", "shop")
    if is_uncommented:
        settings = (tmp_path / "canoa.toml").read_text().splitlines()
        (tmp_path / "canoa.toml").write_text("\n".join(line.removeprefix("# ") for line in settings if " = " in line))

    validated = shell.canoa("config", "validate")

    assert validated.returncode == 0, validated.stdout + validated.stderr
