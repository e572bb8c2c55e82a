"""Type checkers see an action's parameters and its result, and refuse what the worker would refuse.

The cases assert types with `assert_type` and expect errors with `type: ignore[code]`: mypy reports a type that differs,
and an ignored error that is none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
ROOT = Path(__file__).parents[2]

_IGNORED = re.compile(r"  # type: ignore\[[a-z, -]+\]")


def checked(cache: Path, *files: Path) -> list[str]:
    """What mypy says about them."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(cache), *map(str, files)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return [line for line in ended.stdout.splitlines() if ": error: " in line]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_types_are_seen_and_wrong_calls_are_errors(cache: Path) -> None:
    assert len(CASES) >= 2
    assert checked(cache, *CASES) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_every_wrong_call_is_an_error_of_its_own(cache: Path, tmp_path: Path, case: Path) -> None:
    lines = case.read_text().splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if _IGNORED.search(line)]
    naked = tmp_path / f"naked_{case.name}"
    naked.write_text(_IGNORED.sub("", case.read_text()) + "\n")

    errors = checked(cache, naked)

    assert len(wrong) >= 4
    assert {int(line.split(":")[1]) for line in errors} == set(wrong)


def test_a_type_that_differs_is_noticed(cache: Path, tmp_path: Path) -> None:
    (first, *_) = CASES
    lying = tmp_path / "lying.py"
    lying.write_text(first.read_text().replace("Handle[str]", "Handle[int]"))

    errors = checked(cache, lying)

    assert errors
    assert all("[assert-type]" in line for line in errors)
