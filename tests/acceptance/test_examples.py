"""The examples run as they stand, with nothing but the package."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.acceptance.shell import CANOA, ROOT, Shell
from tests.acceptance.terminal import normalised

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
