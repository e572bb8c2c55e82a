"""What happened to open tasks and need not be written yet: that a step was sent for the first time, that a task runs.

Most steps end within two seconds, and then their rows say all of it at once. Should this program be killed before,
whoever finds the task knows that they are out: see `execution/step_restoring.py`.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from canoa.execution.step_moves import AttemptRow
from canoa.execution.step_records import SENT, StepRecord
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Send(msgspec.Struct, frozen=True, gc=False):
    """A first attempt, as it was sent. Nothing changes it, whatever happens to its step."""

    task_id: str
    step: int
    node_id: NodeId | None
    retries: int
    ready_ms: int | None
    due_ms: int | None
    limit_ms: int | None
    sent: AttemptRow


def send_of(step: StepRecord) -> Send:
    return Send(
        step.task_id,
        step.step,
        step.node_id,
        step.retries,
        step.ready_ms,
        step.due_ms,
        step.limit_ms,
        step.story[-1],
    )


def record_of(send: Send) -> StepRecord:
    return StepRecord(
        send.task_id,
        send.step,
        SENT,
        attempt=1,
        send=1,
        retries=send.retries,
        node_id=send.node_id,
        ready_ms=send.ready_ms,
        due_ms=send.due_ms,
        limit_ms=send.limit_ms,
        story=[send.sent],
        is_left_out=True,
    )


class Unwritten:
    """Times are by a clock of the caller's, which never goes back."""

    def __init__(self) -> None:
        self._sends: dict[tuple[str, int], tuple[float, Send]] = {}  # with since when, the oldest first
        self._running: dict[str, float] = {}  # tasks, likewise

    def __bool__(self) -> bool:
        return bool(self._sends or self._running)

    def add(self, sends: Iterable[Send], running: Iterable[str], now_s: float) -> None:
        for send in sends:
            self._sends.setdefault((send.task_id, send.step), (now_s, send))
        for task_id in running:
            self._running.setdefault(task_id, now_s)

    def over(self, steps: Sequence[StepRecord]) -> list[StepRecord]:
        """Steps of which these are the rows; a step that has none is as its plan says."""
        if not self._sends:
            return [*steps]
        sends = [self._sends.get((step.task_id, step.step)) for step in steps]
        return [
            step if step.is_stored or found is None else record_of(found[1])
            for step, found in zip(steps, sends, strict=True)
        ]

    def runs(self, task_id: str) -> bool:
        return task_id in self._running

    def by_node(self) -> Counter[NodeId]:
        """How many are out. Also while the writer's thread notes what it wrote: so from a copy."""
        return Counter(send.node_id for _, send in [*self._sends.values()] if send.node_id is not None)

    def sends_before(self, since_s: float) -> list[Send]:
        """What has lasted since then."""
        return [send for _, send in takewhile(lambda entry: entry[0] <= since_s, self._sends.values())]

    def running_before(self, since_s: float) -> list[str]:
        """Tasks, likewise."""
        return [task_id for task_id, _ in takewhile(lambda entry: entry[1] <= since_s, self._running.items())]

    def wrote(self, steps: Iterable[StepRecord | Send], task_ids: Iterable[str]) -> None:
        """They have rows that say more."""
        if self._sends:
            for step in steps:
                self._sends.pop((step.task_id, step.step), None)
        if self._running:
            for task_id in task_ids:
                self._running.pop(task_id, None)

    def task_ids(self) -> list[str]:
        return [*({task_id for task_id, _ in self._sends} | self._running.keys())]

    def drop_tasks(self, task_ids: Iterable[str]) -> None:
        """They have ended, or are gone."""
        gone = {*task_ids}
        self._sends = {key: entry for key, entry in self._sends.items() if key[0] not in gone}
        self._running = {task_id: since_s for task_id, since_s in self._running.items() if task_id not in gone}
