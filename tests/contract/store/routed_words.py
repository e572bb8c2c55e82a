"""What contract tests of routed tasks say things with: plans, nodes that answer, and a route that knows them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from tests.contract.store.words import NOW_MS, message

from canoa.errors import UnknownAction
from canoa.execution.outcome import Outcome
from canoa.execution.plan import Plan, Step
from canoa.execution.step_moves import CancelTask, Choice, Rerun, StepDue, StepEnd, StepLost
from canoa.store.port import NewTask
from canoa.store.routed_port import Begin
from canoa.vocabulary import ActionName, NodeId, TaskId
from canoa.wire.sapparchi import NODE_ID, parse_request_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canoa.broker.port import Publication
    from canoa.execution.step_moves import Need
    from canoa.store.routed_port import FullStore, Move, Moved, Owed, StepRow

FETCH = ActionName("power.fetch")
FACTOR = ActionName("power.factor")
REPORT = ActionName("power.report")

SINGLE = Plan(name=FETCH, steps=(Step(name="fetch", action=FETCH),))
CHAIN = Plan(
    name="chain",
    steps=(
        Step(name="fetch", action=FETCH),
        Step(name="factor", action=FACTOR, after=("fetch",)),
        Step(name="report", action=REPORT, after=("factor",)),
    ),
)


def fan(width: int) -> Plan:
    """1 → width → 1."""
    middle = tuple(Step(name=f"part-{at}", action=FACTOR, after=("fetch",)) for at in range(width))
    join = Step(name="join", action=REPORT, after=tuple(step.name for step in middle))
    return Plan(name=f"fan-{width}", steps=(Step(name="fetch", action=FETCH), *middle, join))


class Nodes:
    """A route over these nodes, all of which offer everything; in turn."""

    def __init__(self, *names: str, retries: int = 0, timeout_s: float | None = 30.0, unknown: Iterable[str] = ()):
        self.names = list(names)
        self.retries = retries
        self.timeout_s = timeout_s
        self.unoffered = frozenset(unknown)
        self._turn = 0
        self.out: Counter[str] = Counter()  # as far as it was chosen for, and not taken back

    def choose(self, need: Need) -> Choice | None:
        free = [name for name in self.names if name not in need.avoid] or self.names
        if not free or need.action in self.unoffered:
            return None
        self._turn += 1
        node_id = NodeId(free[self._turn % len(free)])
        self.out[node_id] += 1
        return Choice(node_id=node_id, why="its turn", timeout_s=self.timeout_s, retries=self.retries)

    def take_back(self, node_id: NodeId, action: ActionName, now_ms: int) -> None:
        self.out[node_id] -= 1

    def is_known(self, action: ActionName) -> bool:
        return action not in self.unoffered

    def unknown(self, action: ActionName) -> UnknownAction:
        return UnknownAction(action, nodes_offer="")

    def answered_ms(self, node_id: NodeId) -> int | None:
        return None

    def since_ms(self) -> int:
        return 0


ONE = Nodes("gw-7")


def begin(
    task_id: str,
    plan: Plan = SINGLE,
    *,
    body: bytes = b'{"url":"u"}',
    at_ms: int = NOW_MS,
    reply_to: str | None = None,
    due_ms: int | None = None,
    **properties: Any,
) -> Begin:
    request = message(body, **{"message_id": task_id, **properties})
    task = NewTask(
        id=TaskId(task_id),
        action=ActionName(plan.name),
        message=request,
        submitted_ms=at_ms,
        reply_to=reply_to,
        due_ms=due_ms,
    )
    return Begin(task=task, plan=plan, now_ms=at_ms)


def answer(request_id: str, output: object = 1, *, after_ms: int = 100, **fields: Any) -> StepEnd:
    """Of the node that got the request."""
    task_id, step, attempt, send = _parsed(request_id)
    return StepEnd(
        **{
            "task_id": task_id,
            "step": step,
            "attempt": attempt,
            "send": send,
            "outcome": Outcome.OK,
            "output": msgspec.json.encode(output),
            "now_ms": NOW_MS + after_ms,
            "started_ms": NOW_MS + after_ms - 10,
            "ended_ms": NOW_MS + after_ms - 5,
            **fields,
        }
    )


def failed(request_id: str, error: str = "no", **fields: Any) -> StepEnd:
    return answer(request_id, None, **{"outcome": Outcome.FAILED, "error": error, "error_type": "ValueError", **fields})


def lost(request_id: str, *, why: str = "it has no queue", after_ms: int = 50, is_returned: bool = False) -> StepLost:
    task_id, step, attempt, send = _parsed(request_id)
    return StepLost(
        task_id=task_id,
        step=step,
        attempt=attempt,
        send=send,
        why=why,
        is_returned=is_returned,
        now_ms=NOW_MS + after_ms,
    )


def due(task_id: str, step: int, due_ms: int, *, now_ms: int | None = None) -> StepDue:
    return StepDue(task_id=TaskId(task_id), step=step, due_ms=due_ms, now_ms=due_ms if now_ms is None else now_ms)


def cancel(task_id: str, *, after_ms: int = 500) -> CancelTask:
    return CancelTask(task_id=TaskId(task_id), now_ms=NOW_MS + after_ms)


def rerun(task_id: str, *, after_ms: int = 1000) -> Rerun:
    return Rerun(task_id=TaskId(task_id), now_ms=NOW_MS + after_ms)


def _parsed(request_id: str) -> tuple[TaskId, int, int, int]:
    parsed = parse_request_id(request_id)
    assert parsed is not None
    task_id, step, attempt, send = parsed
    return TaskId(task_id), step, attempt, send


async def moved(store: FullStore, *moves: Move, route: Nodes = ONE, paid: Sequence[str] = ()) -> list[Moved]:
    return await store.advance(moves, route, paid=paid)


async def pay(store: FullStore, *keys: str) -> None:
    """The broker has these messages."""
    assert await moved(store, paid=keys) == []


async def move(store: FullStore, one: Move, *, route: Nodes = ONE) -> Moved:
    (done,) = await store.advance([one], route)
    return done


def to_nodes(done: Moved) -> list[str]:
    """Request ids of what is to be sent to nodes."""
    return [owed.key for owed in done.owed if is_to_node(owed.publication)]


def is_to_node(publication: Publication) -> bool:
    return NODE_ID in publication.message.headers


def sent_to(owed: Owed) -> object:
    return owed.publication.message.headers[NODE_ID]


def data_of(owed: Owed) -> Any:
    """What the node gets to work with."""
    body = msgspec.json.decode(owed.publication.message.body)
    return msgspec.json.decode(body["messageData"])


def states(rows: list[StepRow]) -> list[str]:
    return [row.outcome.value if row.outcome is not None else row.state.value for row in rows]
