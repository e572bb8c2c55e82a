"""The machine and the installation: versions, extras, open files, disk, clock. What was measured comes as arguments."""

from __future__ import annotations

import importlib.metadata
import re
import resource
import shutil
import sys
import time
from typing import TYPE_CHECKING, Final

from canoa.doctor.finding import Finding, ok, problem, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MIN_FILES: Final = 1024
"""What most systems give. A worker holds two links and one file per thread and process; an API one per caller."""
LOW_DISK_BYTES: Final = 1 << 30
NO_DISK_BYTES: Final = 100 << 20
JUMP_S: Final = 0.5
SKEW_S: Final = 2.0
"""Clocks are compared by a header that counts whole seconds."""
BAD_SKEW_S: Final = 30.0
"""An action's default time limit: deadlines that cross machines would no longer mean anything."""

_EXTRA = re.compile(r"""^([A-Za-z0-9._-]+).*;.*extra\s*==\s*['"]([\w-]+)['"]""")


def versions() -> Finding:
    python = ".".join(map(str, sys.version_info[:3]))
    return ok("versions", f"canoa {importlib.metadata.version('canoa')}, Python {python} on {sys.platform}")


# --- Extras -------------------------------------------------------------------------------------------


def extras() -> list[Finding]:
    parts = parts_of_extras(importlib.metadata.requires("canoa") or [])
    return judge_extras({extra: {name: is_installed(name) for name in names} for extra, names in parts.items()})


def parts_of_extras(requirements: list[str]) -> dict[str, list[str]]:
    """`fastapi>=0.115; extra == 'server'` makes fastapi a part of server. `all` says nothing new."""
    parts: dict[str, list[str]] = {}
    for match in filter(None, map(_EXTRA.match, requirements)):
        if match[1] != "canoa" and match[2] != "all":
            parts.setdefault(match[2], []).append(match[1])
    return parts


def is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def judge_extras(extras: Mapping[str, Mapping[str, bool]]) -> list[Finding]:
    """Half an extra is a mistake; none of it may well be wanted."""
    whole = [extra for extra, parts in extras.items() if all(parts.values())]
    absent = [extra for extra, parts in extras.items() if not any(parts.values())]
    found = f"installed: {', '.join(whole) or 'none'}" + (f"; not installed: {', '.join(absent)}" if absent else "")
    return [ok("extras", found), *_halves(extras)]


def _halves(extras: Mapping[str, Mapping[str, bool]]) -> Iterator[Finding]:
    for extra, parts in extras.items():
        missing = [name for name, is_there in parts.items() if not is_there]
        if missing and len(missing) < len(parts):
            found = f"{extra} is there in part: {', '.join(missing)} is missing"
            yield warning("extras", found, f"pip install 'canoa[{extra}]'")


# --- Files and disk -----------------------------------------------------------------------------------


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return judge_open_files(soft, hard)


def judge_open_files(soft: int, hard: int) -> Finding:
    """-1 is no limit."""
    if soft == resource.RLIM_INFINITY or soft >= MIN_FILES:
        return ok("open files", "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft:,}")
    remedy = f"ulimit -n {MIN_FILES if hard == resource.RLIM_INFINITY else min(MIN_FILES, hard)}"
    return warning("open files", f"at most {soft:,}", f"{remedy}; for a service, LimitNOFILE={MIN_FILES} in its unit")


def disk(folder: Path) -> Finding:
    """Of the folder, or of the nearest above it that exists."""
    there = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    return judge_disk(str(folder), shutil.disk_usage(there).free)


def judge_disk(folder: str, free_bytes: int) -> Finding:
    found = f"{free_bytes / (1 << 30):,.1f} GiB free in {folder}"
    if free_bytes >= LOW_DISK_BYTES:
        return ok("disk", found)
    remedy = "make room, shorten keep_results_s, or name another place for the store"
    if free_bytes >= NO_DISK_BYTES:
        return warning("disk", found, remedy)
    return problem("disk", f"only {free_bytes / (1 << 20):,.0f} MiB free in {folder}", remedy)


# --- Clock --------------------------------------------------------------------------------------------


class Watch:
    """Started with the examination, so that a clock that is set meanwhile is noticed."""

    def __init__(self) -> None:
        self._wall_s, self._steady_s = time.time(), time.monotonic()

    def jumped_s(self) -> float:
        return (time.time() - self._wall_s) - (time.monotonic() - self._steady_s)


def judge_clock(jumped_s: float, ahead_s: Mapping[str, float | None]) -> Finding:
    """`ahead_s`: by how much our clock is ahead of others', by their names; None where that is not known."""
    skews_s = {name: skew_s for name, skew_s in ahead_s.items() if skew_s is not None}
    remedy = "let a time service (chrony, systemd-timesyncd) keep the clocks of all machines"
    worst = max(skews_s, key=lambda name: abs(skews_s[name]), default=None)
    if abs(jumped_s) > JUMP_S:
        return warning("clock", f"it was set by {jumped_s:+.1f} s during this examination", remedy)
    if worst is None:
        return ok("clock", "steady; nobody there to compare it with")
    skew_s = skews_s[worst]
    found = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the {worst}"
    if abs(skew_s) >= BAD_SKEW_S:
        return problem("clock", found, remedy)
    if abs(skew_s) >= SKEW_S:
        return warning("clock", found, remedy)
    return ok("clock", f"as the {worst}'s, within {SKEW_S:g} s")
