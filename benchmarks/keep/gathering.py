"""`keep_gather_2000_…`: one caller and one worker, from the first submit to the last result, which is kept."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from benchmarks import bare, environment, processes
from benchmarks.contestant import Description
from benchmarks.keep.contestants import MODULES
from benchmarks.keep.recorders import fresh_queues, recorder
from benchmarks.polling import wait_for_consumer
from benchmarks.rows import OURS

if TYPE_CHECKING:
    from collections.abc import Mapping

PAYLOAD_BYTES = 100
WARM_UP = 20


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One contestant on the broker that all of them share."""

    name: str
    env: Mapping[str, str]
    description: Description

    def gather(self, store_url: str, count: int) -> float:
        """Results per second."""
        env = {**self.env, environment.STORE: store_url, environment.RESULTS: "1"}
        link = bare.Link(env[environment.BROKER])
        with ExitStack() as stack:
            stack.enter_context(fresh_queues(link, self.description.queue))
            if self.name == OURS:
                stack.enter_context(recorder(link, env[environment.BROKER], store_url))
            workers = stack.enter_context(processes.workers(self.description.worker, 1, env=env))
            wait_for_consumer(link, self.description.queue, workers)
            processes.ask(MODULES[self.name], "gather", WARM_UP, PAYLOAD_BYTES, env=env)
            seconds: float = processes.ask(MODULES[self.name], "gather", count, PAYLOAD_BYTES, env=env)
        return count / seconds


def stages(env: Mapping[str, str], names: list[str]) -> list[Stage]:
    told = {**env, environment.STORE: "sqlite://", environment.RESULTS: "1"}
    return [
        Stage(
            name=name,
            env=env,
            description=msgspec.convert(processes.ask(MODULES[name], "describe", env=told), Description),
        )
        for name in names
    ]
