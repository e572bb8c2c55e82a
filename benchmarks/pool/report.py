"""From figures to rows, to the table on stdout and the files in `build/bench`."""

from __future__ import annotations

import os
import platform
import statistics
from typing import TYPE_CHECKING

import msgspec

from benchmarks.pool.contestants import LIMIT, OURS
from benchmarks.pool.plan import FOOTPRINT, SESSIONS, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from benchmarks.pool.sessions import Description

BOUND = "bound"

Figures = dict[str, dict[str, list[float]]]
"""By metric, then by contestant: one number per round."""


class Row(msgspec.Struct, frozen=True):
    """`ratio` > 1 means ours is better, whatever the unit."""

    metric: str
    ours: float | None
    peer: str
    peer_value: float
    ratio: float | None
    unit: str


def rows(figures: Figures) -> list[Row]:
    """One per metric and peer, of medians; the limit comes last."""
    units = {name: unit for session in SESSIONS for name, unit in session.metrics.items()}
    found = []
    for metric, by_contestant in figures.items():
        medians = {name: statistics.median(rounds) for name, rounds in by_contestant.items()}
        ours = medians.pop(OURS, None)
        unit = units.get(metric) or FOOTPRINT[metric][0]
        if metric in FOOTPRINT:
            medians[BOUND] = FOOTPRINT[metric][1]
        for peer in sorted(medians, key=lambda name: name == LIMIT):
            found.append(_row(metric, ours, peer, medians[peer], unit))
    return found


def _row(metric: str, ours: float | None, peer: str, peer_value: float, unit: Unit) -> Row:
    ratio = None
    if ours is not None:
        ratio = round(ours / peer_value if unit.is_better_when_higher else peer_value / ours, 3)
        ours = round(ours, 3)
    return Row(metric, ours, peer, round(peer_value, 3), ratio, unit.value)


def table(found: Iterable[Row]) -> str:
    lines = [f"{'metric':<24} {'ours':>10}   {'peer':<11} {'its value':>10}   {'ratio':>7}   unit"]
    for row in found:
        lines.append(
            f"{row.metric:<24} {_number(row.ours)}   {row.peer:<11} {_number(row.peer_value)}   "
            f"{'-' if row.ratio is None else format(row.ratio, '.2f'):>7}   {row.unit}"
        )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return f"{'-':>10}"
    return f"{value:>10,.0f}" if value >= 100 else f"{value:>10.2f}"


def conditions(descriptions: Mapping[str, Description], *, server_version: str, rounds: int, is_quick: bool) -> str:
    quick = "; --quick: sizes cut, no figures to quote" if is_quick else ""
    lines = [
        f"machine      {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        f"broker       RabbitMQ {server_version}, private, as packaged; durable classic queues, persistent messages",
        f"rounds       medians of {rounds}, interleaved{quick}",
    ]
    for name, description in descriptions.items():
        versions = ", ".join(f"{package} {number}" for package, number in description.versions.items())
        lines.append(f"{name:<12} {versions}{'; ' if versions else ''}{description.settings}")
        for role, reason in description.leaves_out.items():
            lines.append(f"{'':<12} not measured: {role} ({reason})")
    return "\n".join(lines)


def keep(found: list[Row], *, conditions: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    path.with_suffix(".conditions.txt").write_text(conditions + "\n")
