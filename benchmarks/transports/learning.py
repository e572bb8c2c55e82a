"""`learned_decision`: what learned routing adds to a decision, over round robin. No broker, no store.

As `routing_decision`, among the same nodes. They differ in how long they take, and after every few choices their
attempts end, so there is something to learn; that is not timed: it comes later, and holds up no decision. Processor
time is, since nothing is waited for.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.manager.deciding import ACTION, BATCH, new_router
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import Need, StepDue, Verdict
from canoa.store.routed_port import Moved
from canoa.vocabulary import NodeId, Routing, TaskId

if TYPE_CHECKING:
    from canoa.execution.step_moves import Choice
    from canoa.manager.router import Router

AVOID = frozenset({NodeId("node-1"), NodeId("node-2")})
PACES_MS = (10, 20, 80, 160)
OUT = 20
"""Attempts under way at once."""


def added_us(*, nodes: int, decisions: int) -> float:
    """Both take turns, batch by batch: a busy moment of the machine hits both."""
    took_us: dict[Routing, list[float]] = {Routing.LEARNED: [], Routing.ROUND_ROBIN: []}
    routers = {routing: new_router(nodes, routing) for routing in took_us}
    for _ in range(decisions // BATCH):
        for routing, router in routers.items():
            took_us[routing].append(_batch_us(router))
    learned, by_turns = (statistics.median(each) for each in took_us.values())
    return learned - by_turns


def _batch_us(router: Router) -> float:
    took_s = 0.0
    for _ in range(BATCH // OUT):
        now_ms = time.time_ns() // 1_000_000
        need = Need(ACTION, now_ms, AVOID)
        began_s = time.process_time()
        choices = [router.choose(need) for _ in range(OUT)]
        took_s += time.process_time() - began_s
        router.ended([_ended(choice, now_ms) for choice in choices if choice is not None])
    return took_s / BATCH * 1_000_000


def _ended(choice: Choice, now_ms: int) -> tuple[StepDue, Moved]:
    """By some move: only its time counts."""
    moved = Moved(
        verdict=Verdict.TAKEN,
        node_id=choice.node_id,
        action=ACTION,
        step_outcome=Outcome.OK,
        took_ms=PACES_MS[int(choice.node_id.removeprefix("node-")) % len(PACES_MS)],
        context=choice.context,
    )
    return StepDue(task_id=TaskId("t"), step=0, due_ms=now_ms, now_ms=now_ms), moved
