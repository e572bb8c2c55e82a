"""What managers need from a store: routed tasks with their steps, what must still be sent, plans, nodes and health.

Part of the port in `port.py`; `tests/contract/store/` holds both databases to it. A routed task has a row among the
tasks, like any other, so whoever lists, awaits or forgets tasks need not know how one was dispatched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from canoa.broker.port import Publication
from canoa.execution.health import BreakerSettings, Sign
from canoa.execution.outcome import Outcome
from canoa.execution.plan import Plan
from canoa.execution.proof import Proof
from canoa.execution.step_moves import (
    AttemptRow,
    CancelTask,
    Rerun,
    Route,
    StepDue,
    StepEnd,
    StepLost,
    StepState,
    Verdict,
)
from canoa.execution.step_settings import StepSettings
from canoa.store.port import NewTask, Store, Writes
from canoa.store.token_port import TokenStore
from canoa.vocabulary import AMQP, HTTP, MQTT_UNHEARD, ActionName, Layer, NodeId, TaskId
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HOLD_OWED_MS: Final = 10_000
"""How long whoever advanced a task has for sending what that left to be sent."""

DEFAULT_SETTINGS: Final = StepSettings()
DEFAULT_BREAKERS: Final = BreakerSettings()

# --- Steps and their story ------------------------------------------------------------------------------


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    task_id: TaskId
    step: int  # its place in the plan
    name: str
    action: ActionName
    state: StepState
    outcome: Outcome | None = None
    ready_ms: int | None = None  # since when nothing but a node is missing
    due_ms: int | None = None  # when something happens to it by itself: its next attempt, or its time limit
    ended_ms: int | None = None
    error: str | None = None
    attempts: tuple[AttemptRow, ...] = ()
    compensates: str | None = None  # of a compensation: the step whose effect it undoes


class Due(msgspec.Struct, frozen=True):
    task_id: TaskId
    step: int
    due_ms: int
    attempt: int = 0  # the one that is out, like `send`; 0: none is
    send: int = 0


class Owed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that a transaction left to be sent. `key` is its own: writing it twice is writing it once. `can_wait`:
    whoever asked is told by another one; not kept, since it matters for a moment."""

    key: str
    publication: Publication
    can_wait: bool = False


# --- Moves: what `advance` takes, and what each answers ------------------------------------------------


class Begin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Accept a routed task and send what can start. `task.message` is the request, its body the task's input as JSON.
    The same id again changes nothing, but adds its `reply_to`."""

    task: NewTask
    plan: Plan
    now_ms: int


Move: TypeAlias = Begin | StepEnd | StepLost | StepDue | CancelTask | Rerun


class Moved(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a move did. `owed` was written with it: send it now, then say that it is paid. `sent`: what left before."""

    verdict: Verdict
    sent: tuple[Owed, ...] = ()
    owed: tuple[Owed, ...] = ()
    task_action: ActionName | None = None  # what the task runs: its plan's name
    node_id: NodeId | None = None  # whose attempt it was
    action: ActionName | None = None
    step: str | None = None  # its name in the plan, where `step_outcome` says how it went
    queued_ms: int | None = None  # from sending that attempt to its start, as far as the clocks agree
    outcome: Outcome | None = None  # of the task, if this ended it
    step_outcome: str | None = None  # of the step's attempt, if this ended one
    took_ms: int | None = None  # that attempt, from sending to answer, where there was one
    context: tuple[float, ...] = ()  # on which its node was chosen
    freed: tuple[tuple[NodeId, ActionName], ...] = ()  # attempts that ended without their node: cancelled, or not sent
    due_ms: tuple[int, ...] = ()  # timers that it set
    cancel: tuple[str, ...] = ()  # request ids that nodes need not answer any more


# --- Nodes and their health ------------------------------------------------------------------------------


class NodeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    node_id: NodeId
    layer: Layer
    actions: tuple[ActionName, ...] = ()  # none: it left
    site: str = ""
    type: str = ""
    endpoint: str = ""
    protocol: str = AMQP  # the preferred one of its `open_ways`; empty: nothing can be sent to it
    ways: tuple[str, ...] = ()  # by which it can be reached, where there are several
    closed: tuple[str, ...] = ()  # those of them that are not open just now, as it says, or its last will
    link: int = 0  # how many it has had to its MQTT broker, as it says: what one had is gone with it
    instance: str = ""
    token: str = ""
    fingerprint: str = ""
    limits: dict[ActionName, ActionLimits] = {}
    takes_bundles: bool = False  # of messages: see `wire/bundle.py`
    takes_canaries: bool = False  # and answers them: see `execution/proof.py`
    grace_s: float | None = None  # that it may be cut off before it is dead; None: as managers think
    proof: str = Proof.UNPROVEN  # that it can receive work; one that is not known is as good as none
    encodings: tuple[str, ...] = ()  # that it reads: see `wire/compression_policy.py`
    link_budget: str = ""  # what may travel to and from it, such as 10MB/day; empty: anything
    labels: dict[str, str] = {}
    load: float | None = None
    registered_ms: int = 0  # when it became what it is
    seen_ms: int = 0  # its last sign of life
    version: int = 0  # of the catalogue, when it changed last; the store counts it

    @property
    def all_ways(self) -> tuple[str, ...]:
        """By which it can be reached, the preferred one first."""
        return self.ways or ((self.protocol,) if self.protocol else ())

    @property
    def has_address_alone(self) -> bool:
        """Or nothing at all: a topic at which it was not heard yet may be nowhere."""
        return all(way in (HTTP, MQTT_UNHEARD) for way in self.all_ways)

    @property
    def open_ways(self) -> tuple[str, ...]:
        """All of them, where none is."""
        if not self.closed:  # as almost always
            return self.all_ways
        return tuple(way for way in self.all_ways if way not in self.closed) or self.all_ways


class BreakerRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a node, or of one action on it. The rules are in `execution/health.py`."""

    node_id: NodeId
    action: str = ""  # empty: the node as a whole
    failures: int = 0  # in a row
    down_until_ms: int = 0
    trial_ms: int = 0  # when the one trial of a half-open circuit was sent
    changed_ms: int = 0


class HealthNote(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt says about its node: about the action on it (`is_about_node` false), or about the whole."""

    node_id: NodeId
    action: str
    sign: Sign
    is_about_node: bool = False
    now_ms: int


class NodesPut(NamedTuple):
    version: int  # of the catalogue, after it
    before: Mapping[NodeId, NodeRow]  # the rows in whose place these are
    found: Sequence[NodeRow] = ()  # another manager wrote them meanwhile, word for word: they were not written again


class HealthNoted(NamedTuple):
    rows: list[BreakerRow]  # that changed
    before: Mapping[tuple[NodeId, str], BreakerRow]  # by node and action, where something had failed


class RoutedStore(Protocol):
    """The managers' part of a store. Errors as in `port.Store`."""

    async def advance(
        self,
        moves: Sequence[Move],
        route: Route,
        *,
        paid: Sequence[str] = (),
        settings: StepSettings = DEFAULT_SETTINGS,
    ) -> list[Moved]:
        """All of them in one transaction, in order, on disk when it returns; one answer each. What it leaves to be sent
        is the caller's for `HOLD_OWED_MS`, then anybody's.
        `paid`: keys of what was owed before and is no longer, since the broker has it, or nobody will ever take it.
        While others that were owed with it are not paid, that is known to this store object alone, and on disk with one
        of its next `take_owed`. Where this raises, it must be said again."""

    async def steps(self, task_id: TaskId) -> list[StepRow]:
        """In the plan's order, and then the compensations that it came to."""

    async def step_output(self, task_id: TaskId, step: int) -> bytes | None: ...

    async def plan_of(self, task_id: TaskId) -> Plan | None: ...

    async def due_steps(self, *, now_ms: int, limit: int) -> list[Due]:
        """The earliest first; also those that are further ahead than any timer is set."""

    async def sent_steps(self, node_id: NodeId, *, limit: int) -> list[str]:
        """Request ids of what is out at a node, the oldest first."""

    async def queued_for(self) -> dict[NodeId, int]:
        """How many steps are out, by node."""

    async def take_owed(self, *, now_ms: int, limit: int, for_ms: int) -> list[Owed]:
        """What nobody holds: whoever wrote it died before it was sent, or said so. Like `take_outbox`. An attempt that
        is not out any more is left out."""

    async def open_steps(self, *, limit: int, after: Due | None = None) -> list[Due]:
        """Every step that is out or waits, for a broker that forgets: by task and step."""

    async def identity(self) -> int:
        """A number that no other store has, the same for all who share this one: made by the first who asks."""

    async def put_plan(self, plan: Plan, *, now_ms: int) -> bool:
        """Register it under its name; False: it was, exactly so."""

    async def plan(self, name: str) -> Plan | None: ...

    async def plans(self) -> list[Plan]: ...

    async def plan_names(self, *, limit: int) -> list[str]:
        """In their order, so many at most."""

    async def put_nodes(self, nodes: Sequence[NodeRow]) -> NodesPut:
        """Write them, each with the catalogue's next version; gives the last, and what stood there in that moment:
        nobody else writes in between. A token that the same instance has been given stays, whatever the row says. What
        stands there word for word, in a later version than the row's own, stays as it is."""

    async def touch_nodes(self, seen_ms: Mapping[NodeId, int]) -> None:
        """Signs of life. No new version."""

    async def nodes(self, *, since: int = 0) -> list[NodeRow]:
        """Those that changed after that version."""

    async def forget_nodes(self, *, seen_before_ms: int) -> list[NodeId]:
        """Remove those nobody has seen since."""

    async def drop_nodes(self, versions: Mapping[NodeId, int]) -> list[NodeId]:
        """Remove those that did not change after that version; gives them."""

    async def note_health(
        self, notes: Sequence[HealthNote], *, settings: BreakerSettings = DEFAULT_BREAKERS
    ) -> HealthNoted:
        """Apply the rules of `execution/health.py` under a lock; gives what changed, and what it was."""

    async def breakers(self) -> list[BreakerRow]: ...


OnMoved: TypeAlias = "Callable[[list[Moved] | Exception], None]"


@runtime_checkable
class DecidesAhead(Protocol):
    """A store that knows what moves do before they are on disk, as long as no other program writes to it."""

    def start_advance(
        self,
        moves: Sequence[Move],
        route: Route,
        *,
        paid: Sequence[str],
        settings: StepSettings,
        ahead: Callable[[Sequence[Owed]], None],
        on_committed: Callable[[Sequence[Moved]], None],
        on_end: OnMoved,
        is_hurried: bool,
    ) -> None:
        """Like `advance`, for whoever does not wait. Moves are decided in the order in which they are given.
        `ahead` gets the attempts at once: they may leave, and are `sent` in the answers. Should the moves not be
        written, or be decided otherwise after all, their actions run in vain, or twice; one answer counts.
        `on_committed` gets the answers once a kill cannot undo them any more: what they owe may leave. `on_end` gets
        them once a power cut cannot either, or hears why not.
        That a step was sent need not be on disk at the end, but soon, if nothing else happens to it.
        `is_hurried`: somebody waits for the end; otherwise it may come a moment later."""

    async def restore(self, *, now_ms: int) -> int:
        """For whoever takes over from a program that was killed: write down what that had sent without writing it down.
        Answers to it count anyway; from now on it is due, too. Says how much that was."""


class FullStore(Store, RoutedStore, TokenStore, Protocol):
    """All that a database does for Canoa."""

    @property
    def writes(self) -> Writes:
        """So far."""
