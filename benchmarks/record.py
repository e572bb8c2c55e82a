"""What a run gathers: figures as they come, and who failed; and what the command lines have in common."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from benchmarks.processes import ContestantFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.rows import Figures


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def chosen(text: str | None, allowed: Sequence[str]) -> list[str]:
    """Names by comma, all of them without any."""
    names = list(allowed) if text is None else [name for name in text.split(",") if name]
    for name in names:
        if name not in allowed:
            raise SystemExit(f"unknown name {name!r}; choose from {', '.join(allowed)}")
    return names


class Record:
    """Figures and failures as they come. One failure does not cost the rest of a long run."""

    def __init__(self, wanted: set[str]) -> None:
        self.wanted = wanted
        self.figures: Figures = {}
        self.failures: list[str] = []

    def take(self, contestant: str, measure: Callable[[], dict[str, float]]) -> None:
        try:
            measured = measure()
        except ContestantFailed as failure:
            say(f"{contestant} failed: {failure}")
            self.failures.append(contestant)
            return
        for metric, value in measured.items():
            if metric in self.wanted:
                say(f"{metric:<26} {contestant:<11} {value:>10,.2f}")
                self.figures.setdefault(metric, {}).setdefault(contestant, []).append(value)

    def end(self) -> None:
        """Not quietly, when something is missing."""
        if self.failures:
            failed = ", ".join(sorted(set(self.failures)))
            raise SystemExit(f"not everything was measured: {failed} failed, see above")
