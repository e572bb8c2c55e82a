"""The page on testing tells the truth: its files, put into a project of their own, pass there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "test-with-a-real-broker.md"
SETTINGS = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
FILES = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.findall(PAGE.read_text()):
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    return tmp_path


def run_pytest(project: Path, *args: str) -> str:
    command = [sys.executable, "-m", "pytest", "-W", "error", *args]
    run = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=100)
    return run.stdout + run.stderr


@pytest.mark.rabbitmq
def test_the_example_of_the_page_passes_in_a_project_of_its_own(project: Path) -> None:
    assert "= 3 passed in" in (output := run_pytest(project)), output


def test_the_marker_leaves_out_every_test_that_needs_the_node(project: Path) -> None:
    assert "= 3 deselected in" in (output := run_pytest(project, "-m", "not rabbitmq")), output
