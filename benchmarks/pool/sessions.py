"""How one figure comes about: a session of one contestant, from an empty queue to numbers."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import bare, environment, processes
from benchmarks.polling import polling, wait_for_consumer
from benchmarks.pool import contestants, stamps
from benchmarks.pool.plan import Drain, Session, Talk
from benchmarks.processes import ContestantFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.contestant import Description
    from benchmarks.processes import Worker

STAMPS_PER_DRAIN = 200
WARM_UP = 20
FILLED_WITHIN_S = 30
DRAINED_WITHIN_S = 120

SETTLE_S = 0.5
"""Between filling a queue and draining it: the broker still writes to its disk."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One contestant on the services that all of them share."""

    name: str
    broker_url: str
    env: Mapping[str, str]
    description: Description

    def plays(self, session: Session) -> bool:
        role = "gather" if isinstance(session, Talk) else "submit"
        return role not in self.description.leaves_out

    def run(self, session: Session, wanted: set[str]) -> dict[str, float]:
        """The session's figures, by metric. The queue is gone afterwards, whatever happened."""
        link = bare.Link(self.broker_url)
        try:
            link.delete(self.description.queue)
            match session:
                case Drain():
                    return self._drain(session, link, wanted)
                case Talk():
                    return self._talk(session, link, wanted)
        finally:
            link.delete(self.description.queue)
            link.close()

    def _drain(self, session: Drain, link: bare.Link, wanted: set[str]) -> dict[str, float]:
        figures: dict[str, float] = {}
        left = session.count
        if session.submit_metric in wanted:
            submitted = session.count // 2
            seconds = self._ask("submit", submitted, session.payload_bytes)
            figures[session.submit_metric] = submitted / seconds
            left -= submitted
        if session.metric in wanted:
            self._ask("fill", left, session.payload_bytes)
            _wait_for_depth(link, self.description.queue, session.count)
            figures[session.metric] = self._drain_rate(session)
        return figures

    def _drain_rate(self, session: Drain) -> float:
        step = session.count // STAMPS_PER_DRAIN
        with tempfile.TemporaryDirectory() as folder:
            env = {**self.env, environment.STAMPS: folder, environment.STEP: str(step)}
            with processes.workers(self.description.worker, session.workers, env=env) as workers:
                # A process may keep up to a step of actions to itself at the end.
                _wait_for_stamps(Path(folder), STAMPS_PER_DRAIN - session.workers, workers)
            try:
                return stamps.steady_rate(stamps.read(Path(folder)), count=session.count, step=step)
            except stamps.Unsteady as exc:
                raise ContestantFailed(str(exc)) from exc

    def _talk(self, session: Talk, link: bare.Link, wanted: set[str]) -> dict[str, float]:
        env = {**self.env, environment.RESULTS: "1"}
        figures: dict[str, float] = {}
        with processes.workers(self.description.worker, 1, env=env) as workers:
            wait_for_consumer(link, self.description.queue, workers)
            self._ask("gather", WARM_UP, session.payload_bytes, env=env)
            if session.gather_metric in wanted:
                seconds = self._ask("gather", session.gathered, session.payload_bytes, env=env)
                figures[session.gather_metric] = session.gathered / seconds
            if session.call_metric in wanted:
                each = self._ask("call", WARM_UP + session.calls, session.payload_bytes, env=env)[WARM_UP:]
                figures[session.call_metric] = statistics.median(each) * 1000
        return figures

    def _ask(self, role: str, count: int, payload_bytes: int, *, env: Mapping[str, str] | None = None) -> Any:
        return processes.ask(contestants.module(self.name), role, count, payload_bytes, env=env or self.env)


def _wait_for_depth(link: bare.Link, queue: str, count: int) -> None:
    """Until the broker has put away what clients sent without waiting for confirms."""
    for _ in polling(FILLED_WITHIN_S, f"{count} messages in {queue}"):
        found = link.look(queue)
        if found is not None and found.messages == count:
            time.sleep(SETTLE_S)
            return


def _wait_for_stamps(folder: Path, count: int, workers: list[Worker]) -> None:
    for _ in polling(DRAINED_WITHIN_S, "the queue to be drained"):
        for worker in workers:
            worker.check()
        if sum(map(len, stamps.read(folder))) >= count:
            return
