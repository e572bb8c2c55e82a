"""Holding a process to a share of a core: by a control group where the kernel lets us, else by stopping it again and
again.

A control group counts what is used; stopping counts the time that passes, so a process that waits loses its share.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PERIOD_S = 0.02
"""Short, so that a limited process is slow and not absent."""

GROUPS = Path("/sys/fs/cgroup")


def way() -> str:
    """For the report."""
    return "control groups" if _writable() else f"stopped and continued every {PERIOD_S * 1000:.0f} ms"


@contextmanager
def limited(pids: Sequence[int], share: float) -> Iterator[None]:
    """Each of these processes to this share of one core, while the block runs."""
    with _grouped(pids, share) if _writable() else _stopped_by_turns(pids, share):
        yield


# --- Control groups -----------------------------------------------------------------------------------------------


def _parent() -> Path:
    """Of version 1 the controller's own tree, of version 2 the only one."""
    return GROUPS / "cpu" if (GROUPS / "cpu").is_dir() else GROUPS


def _writable() -> bool:
    trial = _parent() / f"canoa-{secrets.token_hex(4)}"
    try:
        trial.mkdir()
    except OSError:
        return False
    has_limits = (trial / "cpu.cfs_quota_us").exists() or (trial / "cpu.max").exists()
    trial.rmdir()
    return has_limits


@contextmanager
def _grouped(pids: Sequence[int], share: float) -> Iterator[None]:
    groups = [_parent() / f"canoa-{secrets.token_hex(4)}" for _ in pids]
    try:
        for pid, group in zip(pids, groups, strict=True):
            group.mkdir()
            _set(group, share)
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for group in groups:
            _remove(group)


def _set(group: Path, share: float) -> None:
    period_us = round(PERIOD_S * 1_000_000)
    quota_us = round(period_us * share)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        return
    (group / "cpu.cfs_period_us").write_text(str(period_us))
    (group / "cpu.cfs_quota_us").write_text(str(quota_us))


def _remove(group: Path) -> None:
    with suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (_parent() / "cgroup.procs").write_text(pid)
        group.rmdir()


# --- Without them -------------------------------------------------------------------------------------------------


@contextmanager
def _stopped_by_turns(pids: Sequence[int], share: float) -> Iterator[None]:
    is_over = threading.Event()
    turns = [threading.Thread(target=_stop_by_turns, args=(pid, share, is_over), daemon=True) for pid in pids]
    for turn in turns:
        turn.start()
    try:
        yield
    finally:
        is_over.set()
        for turn in turns:
            turn.join()


def _stop_by_turns(pid: int, share: float, is_over: threading.Event) -> None:
    with suppress(ProcessLookupError):
        while not is_over.is_set():
            os.kill(pid, signal.SIGCONT)
            is_over.wait(PERIOD_S * share)
            os.kill(pid, signal.SIGSTOP)
            is_over.wait(PERIOD_S * (1 - share))
        os.kill(pid, signal.SIGCONT)
