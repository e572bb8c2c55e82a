"""In which order the files of tests run: whole programs beside real parts, and units last.

Acceptance tests keep the processors busy, and tests of real parts mostly wait, for a broker or for time to pass. One
after the other they would leave nothing to the second half, so their files alternate. Units fill what is left: a long
file at the end would run alone.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

BUSY = "acceptance"
LAST = ("typing", "unit")


def alternating(items: Sequence[pytest.Item], root: Path) -> list[pytest.Item]:
    """The same tests, file by file, in an order that depends on nothing else: all processes of a run must agree."""
    files = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    kinds = {kind: [each for each in files if _kind(each, root) == kind] for kind in ("busy", "waiting", "last")}
    first = [
        (number / len(group), each) for group in (kinds["busy"], kinds["waiting"]) for number, each in enumerate(group)
    ]
    ordered = [each for _, each in sorted(first, key=lambda pair: pair[0])] + kinds["last"]
    return [item for file in ordered for item in file]


def _kind(file: Sequence[pytest.Item], root: Path) -> str:
    path = file[0].path
    folder = path.relative_to(root).parts[0] if path.is_relative_to(root) else ""
    return "busy" if folder == BUSY else "last" if folder in LAST else "waiting"
