"""`learned_decision`: what learned routing adds to a decision, over round robin. No broker, no store.

The nodes are those of `routing_decision`. Each choice is followed by the end of its attempt, from which is learnt: both
hold up the same event loop, so both count. Nodes differ in how long they take, so there is something to learn.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.manager.deciding import ACTION, BATCH, new_router
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import Need, Verdict
from canoa.store.routed_port import Moved
from canoa.vocabulary import NodeId, Routing

if TYPE_CHECKING:
    from canoa.execution.step_moves import Choice
    from canoa.manager.router import Router

AVOID = frozenset({NodeId("node-1"), NodeId("node-2")})
PACES_MS = (10, 20, 80, 160)


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
    began = time.process_time()
    for _ in range(BATCH):
        now_ms = time.time_ns() // 1_000_000
        choice = router.choose(Need(ACTION, now_ms, AVOID))
        assert choice is not None
        router.ended(_ended(choice), now_ms)
    return (time.process_time() - began) / BATCH * 1_000_000


def _ended(choice: Choice) -> Moved:
    return Moved(
        verdict=Verdict.TAKEN,
        node_id=choice.node_id,
        action=ACTION,
        step_outcome=Outcome.OK,
        took_ms=PACES_MS[int(choice.node_id.removeprefix("node-")) % len(PACES_MS)],
        context=choice.context,
    )
