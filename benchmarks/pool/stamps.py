"""When which share of the work was done, told by the actions themselves.

Every contestant's action calls `tick()`. Each worker process appends the wall clock to a file of its own after every
`STEP` actions; put together, the files say when the k-th action ended, whatever the number of processes.
One method for everyone: start-up, the queue's last few per cent and the harness's own polling do not count.
"""

from __future__ import annotations

import array
import functools
import itertools
import os
import time
from pathlib import Path

from benchmarks import environment

FIRST_SHARE = 0.10
"""Where the measured window opens: caches are warm and prefetch is full by then."""

LAST_SHARE = 0.95
"""Where it closes: before prefetch runs dry."""

LEAST_SHARE = 0.25
"""The window must hold this share of all messages, or the figure means nothing."""


class Unsteady(Exception):
    """The stamps hold no window in which all processes were at work."""


_step = int(os.environ.get(environment.STEP, "0"))
_count = itertools.count(1)  # its next() is atomic, so threads may share it


@functools.cache
def _file() -> int:
    # Opened at the first stamp, not at import: some workers fork after importing their actions.
    path = Path(os.environ[environment.STAMPS], str(os.getpid()))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def tick() -> None:
    """One action was run."""
    if _step and next(_count) % _step == 0:
        os.write(_file(), array.array("d", [time.time()]).tobytes())


def read(folder: Path) -> list[array.array[float]]:
    """The stamps so far, one array per worker process."""
    return [_whole_stamps(path.read_bytes()) for path in folder.iterdir()]


def _whole_stamps(data: bytes) -> array.array[float]:
    return array.array("d", data[: len(data) // 8 * 8])


def steady_rate(stamps: list[array.array[float]], *, count: int, step: int) -> float:
    """Actions per second while all processes were at work, between the first and the last share of `count`."""
    done_at = sorted(itertools.chain.from_iterable(stamps))
    everyone_runs_at = max(own[0] for own in stamps)
    first = max(int(count * FIRST_SHARE) // step, done_at.index(everyone_runs_at))
    last = int(count * LAST_SHARE) // step - 1
    if (last - first) * step < count * LEAST_SHARE:
        raise Unsteady("the last worker started when most of the work was done; preload more messages")
    return (last - first) * step / (done_at[last] - done_at[first])
