"""A process that owns something, so that another one can tell whether it still runs: at once, where it can see it.

What is said here is about Linux; elsewhere, and between machines, the answer is "not known", and one has to wait.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from canoa.wire.ids import new_client_id


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """`id`: of what in it owns the thing. `is_brief`: it gives it back by itself soon."""

    host: str
    space: str  # of process numbers: containers on one host have their own
    pid: int
    started: str  # a number is used again, but not with the same start
    id: str
    is_brief: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process(*, is_brief: bool = False) -> Process:
    pid = os.getpid()
    _, started = _state_and_start(pid)
    return Process(
        host=socket.gethostname(), space=_space(), pid=pid, started=started, id=new_client_id(), is_brief=is_brief
    )


def is_running(process: Process) -> bool | None:
    """None: it cannot be seen from here."""
    if (process.host, process.space) != (socket.gethostname(), _space()):
        return None
    try:
        os.kill(process.pid, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's, so it runs
        pass
    state, started = _state_and_start(process.pid)
    if not started or not process.started:
        return None
    return started == process.started and state != "Z"  # ended, and nobody has asked how


def _state_and_start(pid: int) -> tuple[str, str]:
    """See proc(5): the third and the 22nd field; the second is a name that may hold anything. Empty: not told."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
