"""`canoa manager` as processes of their own."""

from __future__ import annotations

import secrets
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import processes
from benchmarks.polling import READY_WITHIN_S, polling
from canoa.broker import topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.bare import Link
    from benchmarks.processes import Worker

COMMAND = str(Path(sys.executable).with_name("canoa"))


@contextmanager
def managers(link: Link, broker_url: str, store_url: str, count: int = 1) -> Iterator[list[Worker]]:
    """All of them at work."""
    command = [COMMAND, "manager", "--broker", broker_url, "--store", store_url, "--port", "0", "--log-level", "error"]
    with processes.workers(command, count, env={"CANOA_API_TOKEN": secrets.token_hex()}) as running:
        for _ in polling(READY_WITHIN_S, f"{count} managers"):
            for manager in running:
                manager.check()
            found = link.look(topology.STEP_RESULTS)
            if found is not None and found.consumers >= count:
                break
        yield running
