"""A server, and a helper if it has one, as one process group: they start together and none outlives the others.

A small shell leads the group. It ends all of it when the server ends, and, unless the group is detached, when the
process that started it is gone, however that died. Nothing here knows which server it is.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The kernel closes our end of the pipe when we die, even by SIGKILL: `read` returns, the group goes. (A parent-death
# signal would be shorter, but it fires when the starting *thread* ends.) A background job's stdin is /dev/null, hence
# descriptor 3.
_LEAD = """
exec 3<&0
{helper} 3<&- &
{server} 3<&- &
server=$!
{guard}
wait "$server"
kill -KILL 0
"""
_GUARD = "{ read -r _ <&3; kill -KILL 0; } &"


class ProcessGroup:
    """`server`, and `helper` if there is one, running with `env` in `folder`, their output in `output`."""

    def __init__(
        self,
        server: Sequence[str],
        *,
        helper: Sequence[str] = (":",),
        env: Mapping[str, str],
        folder: Path,
        output: Path,
        detached: bool,
    ) -> None:
        script = _LEAD.format(
            helper=shlex.join(helper), server=shlex.join(server), guard="exec 3<&-" if detached else _GUARD
        )
        if detached:  # one more shell in between, so that the group is nobody's child and leaves no zombie with us
            script = f"({script}) &"
        with output.open("wb") as sink:
            self._leader = subprocess.Popen(
                ["/bin/sh", "-c", script],
                stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                env=dict(env),
                cwd=folder,
                start_new_session=True,
            )
        self._detached = detached
        self.id = self._leader.pid
        if detached:
            self._leader.wait()

    @property
    def has_ended(self) -> bool:
        return not _group_exists(self.id) if self._detached else self._leader.poll() is not None

    def kill(self) -> None:
        """SIGKILL to every member. Returns once the leader is gone; its orphans follow at once."""
        kill_group(self.id)
        if self._leader.stdin is not None:
            self._leader.stdin.close()
        self._leader.wait()


def kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def is_alive(pid: int) -> bool:
    """Running, not merely waiting to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # gone just now, or a system without /proc
        return not Path("/proc/self").exists()
    return stat.rpartition(")")[2].split()[0] != "Z"


def children(pid: int) -> list[int]:
    """The processes it started and that still run; none where that cannot be seen."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone just now
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def command_line(pid: int) -> str:
    """What the process was started with, or an empty text where that cannot be seen."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def wait_gone(pid: int, *, timeout_s: float) -> bool:
    """Whether the process ended in time."""
    ends_at = time.monotonic() + timeout_s
    while is_alive(pid):
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.02)
    return True
