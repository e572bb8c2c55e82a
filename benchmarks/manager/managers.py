"""`canoa manager` as processes of their own, and what they count."""

from __future__ import annotations

import re
import secrets
import sys
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import processes
from benchmarks.polling import READY_WITHIN_S, polling
from canoa.broker import topology
from canoa.testing.ports import LOOPBACK, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.bare import Link
    from benchmarks.processes import Worker

COMMAND = str(Path(sys.executable).with_name("canoa"))
ASKED_WITHIN_S = 10


class Manager(NamedTuple):
    process: Worker
    metrics_port: int
    api_port: int

    def counted(self, name: str) -> float:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.metrics_port}/metrics", timeout=ASKED_WITHIN_S) as answer:
            found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None, name
        return float(found[1])


@contextmanager
def managers(
    link: Link, broker_url: str, store_url: str, count: int = 1, *, env: Mapping[str, str] = {}
) -> Iterator[list[Manager]]:
    """All of them at work. `env`: what they are told besides."""
    with ExitStack() as stack:
        running = [stack.enter_context(_started(broker_url, store_url, env)) for _ in range(count)]
        for _ in polling(READY_WITHIN_S, f"{count} managers"):
            for manager in running:
                manager.process.check()
            found = link.look(topology.STEP_RESULTS)
            if found is not None and found.consumers >= count:
                break
        yield running


@contextmanager
def _started(broker_url: str, store_url: str, env: Mapping[str, str]) -> Iterator[Manager]:
    api_port, metrics_port = free_port(), free_port()
    command = [COMMAND, "manager", "--broker", broker_url, "--store", store_url, "--log-level", "error"]
    command += ["--port", str(api_port), "--metrics", f"{LOOPBACK}:{metrics_port}"]
    with processes.workers(command, 1, env={"CANOA_API_TOKEN": secrets.token_hex(), **env}) as [process]:
        yield Manager(process, metrics_port, api_port)
