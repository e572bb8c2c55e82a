"""From figures to rows, to the table on stdout and the files in `build/bench`."""

from __future__ import annotations

import enum
import os
import platform
import statistics
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from benchmarks.contestant import Description

OURS = "canoa"
LIMIT = "limit"
BOUND = "bound"

Figures = dict[str, dict[str, list[float]]]
"""By metric, then by contestant: one number per round."""


class Unit(enum.StrEnum):
    PER_SECOND = "1/s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    MEBIBYTES = "MiB"
    PERCENT = "%"

    @property
    def is_better_when_higher(self) -> bool:
        return self is Unit.PER_SECOND


class Metric(msgspec.Struct, frozen=True):
    """`bound`: what ours has to keep, where nobody else is measured beside it."""

    unit: Unit
    bound: float | None = None


class Row(msgspec.Struct, frozen=True):
    """`ratio` > 1 means ours is better, whatever the unit. Without a peer it is a figure to know, no more."""

    metric: str
    ours: float | None
    peer: str | None
    peer_value: float | None
    ratio: float | None
    unit: str


def rows(figures: Figures, metrics: Mapping[str, Metric]) -> list[Row]:
    """One per metric and peer, of medians; the limit comes last."""
    return [row for name, measured in figures.items() for row in _rows_of(name, measured, metrics[name])]


def _rows_of(name: str, measured: Mapping[str, list[float]], metric: Metric) -> Iterator[Row]:
    medians = {contestant: statistics.median(rounds) for contestant, rounds in measured.items()}
    ours = medians.pop(OURS, None)
    if metric.bound is not None:
        medians[BOUND] = metric.bound
    if not medians and ours is not None:
        yield Row(name, round(ours, 3), None, None, None, metric.unit.value)
    for peer in sorted(medians, key=lambda contestant: contestant == LIMIT):
        yield _row(name, ours, peer, medians[peer], metric.unit)


def _row(name: str, ours: float | None, peer: str, peer_value: float, unit: Unit) -> Row:
    ratio = None
    if ours is not None:
        ratio = round(ours / peer_value if unit.is_better_when_higher else peer_value / ours, 3)
        ours = round(ours, 3)
    return Row(name, ours, peer, round(peer_value, 3), ratio, unit.value)


def table(found: Iterable[Row]) -> str:
    lines = [f"{'metric':<26} {'ours':>10}   {'peer':<18} {'its value':>10}   {'ratio':>7}   unit"]
    for row in found:
        lines.append(
            f"{row.metric:<26} {_number(row.ours)}   {row.peer or '-':<18} {_number(row.peer_value)}   "
            f"{'-' if row.ratio is None else format(row.ratio, '.2f'):>7}   {row.unit}"
        )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return f"{'-':>10}"
    return f"{value:>10,.0f}" if value >= 100 else f"{value:>10.2f}"


def keep(found: list[Row], *, conditions: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    path.with_suffix(".conditions.txt").write_text(conditions + "\n")


# --- Under which conditions -----------------------------------------------------------------------------------


def machine() -> str:
    """With how busy it is already: what shares the cores with others is no figure to quote."""
    load = f"load average {os.getloadavg()[0]:.1f} at the start"
    return f"machine      {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; {load}"


def rounds_line(rounds: int, *, is_quick: bool) -> str:
    quick = "; --quick: sizes cut, no figures to quote" if is_quick else ""
    return f"rounds       medians of {rounds}, interleaved{quick}"


def described(descriptions: Mapping[str, Description]) -> Iterator[str]:
    """What takes part, in which version, with which settings."""
    for name, description in descriptions.items():
        versions = ", ".join(f"{package} {number}" for package, number in description.versions.items())
        yield f"{name:<12} {versions}{'; ' if versions else ''}{description.settings}"
        for reason in dict.fromkeys(description.leaves_out.values()):
            roles = [role for role, why in description.leaves_out.items() if why == reason]
            yield f"{'':<12} not measured: {', '.join(roles)} ({reason})"
