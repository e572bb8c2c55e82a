"""`routing_decision`: how long choosing a node takes, while it holds up a transaction. No broker, no store.

All nodes offer the action, so that all of them are looked at by whoever looks at all. Every tenth is down, and each
choice avoids two nodes that had the step before: the case of a retry.
"""

from __future__ import annotations

import statistics
import time
from typing import Final

from canoa.execution.step_moves import Need
from canoa.manager.catalogue import Catalogue
from canoa.manager.node_settings import NodeSettings
from canoa.manager.router import Router
from canoa.manager.routing.strategies import Strategies
from canoa.manager.watching import Watching
from canoa.store.routed_port import BreakerRow, NodeRow
from canoa.vocabulary import ActionName, Layer, NodeId, Routing

ACTION: Final = ActionName("bench.echo")
OTHERS: Final = tuple(ActionName(f"bench.action{number}") for number in range(20))
DOWN_EVERY: Final = 10
BATCH: Final = 200


def median_us(*, nodes: int, decisions: int) -> float:
    """Of batches: one decision is too short to be timed by itself."""
    router = new_router(nodes)
    avoid = frozenset({NodeId("node-1"), NodeId("node-2")})
    now_ms = int(time.time() * 1000)
    took_us = []
    for _ in range(decisions // BATCH):
        began = time.perf_counter()
        for _ in range(BATCH):
            router.choose(Need(ACTION, now_ms, avoid))
        took_us.append((time.perf_counter() - began) / BATCH * 1_000_000)
    return statistics.median(took_us)


def new_router(nodes: int, routing: Routing = Routing.ROUND_ROBIN) -> Router:
    settings = NodeSettings()
    catalogue = Catalogue(settings)
    now_ms = catalogue.now_ms()
    names = [NodeId(f"node-{number}") for number in range(nodes)]
    catalogue.take(
        NodeRow(node_id=name, layer=Layer.FOG, actions=(ACTION, *OTHERS), seen_ms=now_ms, version=version)
        for version, name in enumerate(names, 1)
    )
    until_ms = now_ms + settings.breaker.down_ms
    catalogue.take_breakers(
        BreakerRow(node_id=name, failures=3, down_until_ms=until_ms) for name in names[::DOWN_EVERY]
    )
    watching = Watching(catalogue.clock)
    return Router(catalogue, Strategies(routing), settings=settings.breaker, watching=watching, note=lambda note: None)
