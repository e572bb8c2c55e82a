"""The order in which files of tests run."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from tests.order import alternating

if TYPE_CHECKING:
    import pytest

ROOT = Path("/project/tests")


def items(*files: str) -> list[pytest.Item]:
    """Two tests of each file."""
    return [cast("pytest.Item", SimpleNamespace(path=ROOT / file, name=name)) for file in files for name in "ab"]


def files_of(items: list[pytest.Item]) -> list[str]:
    return [path.name for path, _ in groupby(items, key=lambda item: item.path)]


def test_busy_files_and_waiting_ones_alternate_and_units_come_last() -> None:
    given = items("acceptance/1", "acceptance/2", "contract/3", "integration/4", "integration/5", "unit/6")

    ordered = alternating(given, ROOT)

    assert files_of(ordered) == ["1", "3", "4", "2", "5", "6"]


def test_no_test_is_lost_and_the_tests_of_a_file_stay_together_in_their_order() -> None:
    given = items("unit/1", "acceptance/2", "integration/3", "../elsewhere/4", "typing/5")

    ordered = alternating(given, ROOT)

    assert len(files_of(ordered)) == 5
    assert sorted(map(id, ordered)) == sorted(map(id, given))
    assert [item.name for item in ordered] == ["a", "b"] * 5
