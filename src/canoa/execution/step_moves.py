"""What may happen to a step, and what is said about it: the moves, how one attempt went, and who chooses nodes.

Values and a protocol; what follows from a move is decided in `steps.py`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from canoa.execution.outcome import Outcome
from canoa.execution.placement import Placement
from canoa.vocabulary import ActionName, NodeId, TaskId

if TYPE_CHECKING:
    from canoa.errors import UnknownAction


class StepState(enum.StrEnum):
    BLOCKED = "blocked"  # what it waits for has not ended
    WAITING = "waiting"  # for a node that can run it, or for its next attempt
    SENT = "sent"  # a node has it, or will
    ENDED = "ended"
    SKIPPED = "skipped"  # what it waits for did not succeed, or the task was cancelled


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One time a step was sent to a node."""

    attempt: int
    node_id: NodeId
    why: str  # this node and no other
    sent_ms: int
    started_ms: int | None = None  # by managers' time, as far as its node knows it
    ended_ms: int | None = None
    outcome: str | None = None  # an `Outcome`, `returned`, `lost` or `undone`; None while it is out
    error: str | None = None
    passed: tuple[str, ...] = ()  # which other nodes were ruled out, and by what
    context: tuple[float, ...] = ()  # while it is out: what the choice was made on, for whoever learns from its end


class StepEnd(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node's answer. It counts only for the attempt that is out, and once."""

    task_id: TaskId
    step: int
    attempt: int
    send: int
    outcome: Outcome
    output: bytes  # JSON
    now_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    error: str | None = None
    error_type: str = ""
    traceback: str = ""
    is_final: bool = False  # the action said that another attempt is pointless


class StepLost(msgspec.Struct, frozen=True, kw_only=True):
    """It will not be answered: the node has no queue, is gone, or gave it back. To another node, and no attempt."""

    task_id: TaskId
    step: int
    attempt: int
    send: int
    why: str
    is_returned: bool = False
    now_ms: int


class StepDue(msgspec.Struct, frozen=True, kw_only=True):
    """Its time has come, if it still has that `due_ms`: the next attempt, another look for a node, or a time-out.
    `back_ms`: or it may never come, since the clock by which it was set has been set back by so much."""

    task_id: TaskId
    step: int
    due_ms: int
    now_ms: int
    back_ms: int = 0


class CancelTask(msgspec.Struct, frozen=True, kw_only=True):
    task_id: TaskId
    now_ms: int


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """Open a task that ended badly again, as its next run: steps that succeeded keep their results, unless they were
    compensated. Where compensations failed, only these are run."""

    task_id: TaskId
    now_ms: int


class Verdict(enum.StrEnum):
    TAKEN = "taken"
    DOUBLE = "double"  # it was known: the same task again, the same answer again
    LATE = "late"  # of an attempt, a run or a time that is over
    UNKNOWN = "unknown"  # no such task or step


TAKEN: Final = Verdict.TAKEN
"""As almost always; see `outcome.OK`."""


class Choice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where an attempt goes, and why."""

    node_id: NodeId
    why: str
    timeout_s: float | None  # what the node says about the action
    retries: int
    context: tuple[float, ...] = ()  # what the choice was made on
    passed: tuple[str, ...] = ()  # which other nodes were not, and what ruled them out


class Need(msgspec.Struct, frozen=True, gc=False):
    """An attempt that needs a node. Made for every one, so no `NamedTuple`, which takes five times as long."""

    action: ActionName
    now_ms: int
    avoid: frozenset[NodeId] = frozenset()
    retries_left: int | None = None  # should it fail; None: what the node says
    size_bytes: int = 0  # of its input, as far as that is at hand
    placement: Placement | None = None  # the step's; None: as the action's nodes say
    near: tuple[NodeId, ...] = ()  # the nodes that its input comes from
    site: str = ""  # where none of these is: that of the caller
    task_id: str = ""  # whose it is; empty: nobody's, it is only asked
    step: int = 0


class Route(Protocol):
    """Chooses nodes inside a transaction: quick, without waiting, from any thread."""

    def choose(self, need: Need) -> Choice | None:
        """None: nobody can take it now."""

    def take_back(self, node_id: NodeId, action: ActionName, now_ms: int) -> None:
        """An attempt that the node was chosen for is decided anew: nothing of it is out there."""

    def is_known(self, action: ActionName) -> bool:
        """Somebody offers it, or did and may come back."""

    def unknown(self, action: ActionName) -> UnknownAction:
        """For one that is not known: what to tell whoever asked for it."""

    def answered_ms(self, node_id: NodeId) -> int | None:
        """When the node last ended an attempt, whichever; None: not since `since_ms`."""

    def since_ms(self) -> int:
        """Since when this manager looks after steps, by a clock that nobody has set meanwhile: what lasted longer may
        have lasted for want of a manager."""
