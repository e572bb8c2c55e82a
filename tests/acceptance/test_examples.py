"""The examples run as they stand, with nothing but the package."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.acceptance.shell import ROOT


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
