"""What moves tell: events for whoever looks on, and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from canoa.broker import topology
from canoa.clock import as_time
from canoa.execution.step_moves import TAKEN, StepEnd, StepLost
from canoa.store.routed_port import Begin
from canoa.store.telling import tell
from canoa.wire import sapparchi
from canoa.wire.event import Event
from canoa.wire.task import ATTEMPT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.events import Events
    from canoa.broker.port import Message
    from canoa.execution.step_moves import CancelTask, Rerun, StepDue
    from canoa.manager.metrics import ManagerStats
    from canoa.store.routed_port import Move, Moved
    from canoa.vocabulary import TaskId

    _TimedMove: TypeAlias = Begin | StepEnd | StepLost | StepDue | CancelTask | Rerun


class Telling:
    def __init__(self, events: Events, stats: ManagerStats) -> None:
        self._events = events
        self._stats = stats

    def on_written(self, written: Sequence[tuple[Move, Moved]]) -> None:
        """One of which there is something wrong does not keep the others from being told."""
        are_wanted = self._events.are_wanted
        for move, moved in written:
            if moved.queued_ms is not None:
                self._stats.step_queue.observe(moved.queued_ms / 1000)
            if moved.verdict is TAKEN and (are_wanted or moved.outcome is not None or isinstance(move, Begin)):
                tell(self._on_taken, move, moved, are_wanted)

    def _on_taken(self, move: Move, moved: Moved, are_wanted: bool) -> None:
        """In the order in which it happened: accepted, a step ended, the next ones sent, the task ended. `are_wanted`:
        also what happens to steps."""
        if isinstance(move, Begin):
            self._tell("accepted", move.task.id, moved, move.now_ms)
        if are_wanted:
            self._tell_steps(move, moved)
        if moved.outcome is not None:
            self._stats.tasks[moved.outcome] += 1
            self._tell("ended", _task_id(move), moved, move.now_ms)

    def _tell(self, kind: str, task_id: str, moved: Moved, at_ms: int) -> None:
        self._events.tell(
            Event(
                kind=kind,
                task_id=task_id,
                action=moved.task_action or "",
                at=as_time(at_ms),
                outcome=None if moved.outcome is None or kind == "accepted" else moved.outcome.value,
            )
        )

    def _tell_steps(self, move: Move, moved: Moved) -> None:
        """A task has many: together they take an eighth of what the task takes."""
        if moved.step_outcome is not None:
            self._tell_step_ended(move, moved)
        for owed in (*moved.sent, *moved.owed):
            if owed.publication.exchange == topology.NODE_UNICAST:
                self._tell_sent(owed.publication.message, moved, move.now_ms)

    def _tell_step_ended(self, move: _TimedMove, moved: Moved) -> None:
        self._events.tell(
            Event(
                kind="step_ended",
                task_id=_task_id(move),
                action=moved.task_action or "",
                at=as_time(move.now_ms),
                outcome=moved.step_outcome,
                text=move.error if isinstance(move, StepEnd) else None,
                node_id=moved.node_id,
                attempt=move.attempt if isinstance(move, StepEnd | StepLost) else None,
                step=moved.step,
            )
        )

    def _tell_sent(self, message: Message, moved: Moved, at_ms: int) -> None:
        headers = message.headers
        attempt = headers.get(ATTEMPT, 1)
        self._events.tell(
            Event(
                kind="step_sent",
                task_id=str(headers.get(sapparchi.TASK, "")),
                action=moved.task_action or "",
                at=as_time(at_ms),
                node_id=str(headers.get(sapparchi.NODE_ID, "")),
                attempt=attempt if isinstance(attempt, int) else None,
                step=str(headers.get(sapparchi.STEP, "")),
            )
        )


def _task_id(move: _TimedMove) -> TaskId:
    return move.task.id if isinstance(move, Begin) else move.task_id
