"""Waiting for what other processes do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.processes import ContestantFailed, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.bare import Link

READY_WITHIN_S = 30
POLL_S = 0.05


def polling(within_s: float, what: str, *, every_s: float = POLL_S) -> Iterator[None]:
    """Turns of a waiting loop; raises when time is up."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        yield
        time.sleep(every_s)
    raise ContestantFailed(f"waited {within_s:.0f} s for {what}")


def wait_for_consumer(link: Link, queue: str, workers: Sequence[Worker]) -> None:
    for _ in polling(READY_WITHIN_S, f"a consumer of {queue}"):
        for worker in workers:
            worker.check()
        found = link.look(queue)
        if found is not None and found.consumers:
            return
