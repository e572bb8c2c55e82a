"""A `canoa recorder` of its own, and the queues that it finds empty."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import processes
from benchmarks.polling import wait_for_consumer
from canoa.broker import topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.bare import Link
    from benchmarks.processes import Worker

COMMAND = str(Path(sys.executable).with_name("canoa"))


@contextmanager
def started_recorder(broker_url: str, store_url: str) -> Iterator[Worker]:
    """Started, not ready yet."""
    command = [COMMAND, "recorder", "--broker", broker_url, "--store", store_url, "--log-level", "warning"]
    with processes.workers(command, 1, env={}) as [process]:
        yield process


@contextmanager
def recorder(link: Link, broker_url: str, store_url: str) -> Iterator[Worker]:
    """Ready to keep."""
    with started_recorder(broker_url, store_url) as process:
        wait_for_consumer(link, topology.RESULTS, [process])
        yield process


@contextmanager
def fresh_queues(link: Link, *others: str) -> Iterator[None]:
    """The recorders' queues, and these, do not exist before and after."""
    queues = (topology.SUBMIT, topology.RESULTS, topology.DEAD, *others)
    for queue in queues:
        link.delete(queue)
    try:
        yield
    finally:
        for queue in queues:
            link.delete(queue)
