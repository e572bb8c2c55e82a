"""Strategies against each other over the same requests, in time that only the simulation moves. Seeded: no clock.

Nodes differ in speed and in how much they do at once, stand near or far, and change: what was quick becomes slow. A
request takes its work over the speed that its node has when it starts, times chance; before that it waits in the node's
queue. Everything about a request but its node is drawn beforehand, so all strategies meet the same world.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from canoa.execution.step_moves import Need
from canoa.manager.routing.port import Candidate, Seen
from canoa.manager.routing.traffic import Traffic
from canoa.vocabulary import ActionName, Layer, NodeId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.manager.routing.port import Strategy

ACTION: Final = ActionName("simulated.action")
WORK_MS: Final = 50.0
"""Of a request of one KiB, at a node of speed 1."""

BUSY: Final = 0.5
"""Share of what all nodes together can do, at the speeds they begin with, that is asked of them."""

CHANGE_EVERY_MS: Final = 30_000.0
NOISE: Final = 0.3
"""Standard deviation of the logarithm of what chance does to a request."""

TRAVEL_MS: Final = {Layer.EDGE: 2.0, Layer.FOG: 5.0, Layer.CLOUD: 20.0}


class Node(NamedTuple):
    candidate: Candidate
    slots: int  # what it does at once
    since_ms: tuple[float, ...]  # when it takes on each of `speeds`, from 0 on
    speeds: tuple[float, ...]

    def speed(self, at_ms: float) -> float:
        return self.speeds[bisect_right(self.since_ms, at_ms) - 1]


class Request(NamedTuple):
    at_ms: float
    size_bytes: int
    work_ms: float  # at speed 1, with chance


class World(NamedTuple):
    nodes: tuple[Node, ...]
    requests: tuple[Request, ...]


class Run(NamedTuple):
    """What became of the requests, in their order."""

    took_ms: tuple[float, ...]
    nodes: tuple[NodeId, ...]

    @property
    def mean_ms(self) -> float:
        return sum(self.took_ms) / len(self.took_ms)

    @property
    def p95_ms(self) -> float:
        return sorted(self.took_ms)[int(len(self.took_ms) * 0.95)]


def world(seed: int, *, requests: int = 3_000) -> World:
    """Nodes of different and changing speed."""
    random = Random(seed)
    nodes = tuple(_node(number, random) for number in range(random.randint(4, 16)))
    capacity = sum(node.slots * node.speeds[0] for node in nodes) / WORK_MS  # requests per millisecond
    return World(nodes, tuple(_requests(random, requests, per_ms=BUSY * capacity)))


def _node(number: int, random: Random) -> Node:
    """Changes go both ways around what it is made for."""
    made_for = 2.0 ** random.uniform(-1.5, 1.5)
    since_ms, speeds = [0.0], [made_for]
    for _ in range(100):
        since_ms.append(since_ms[-1] + random.expovariate(1 / CHANGE_EVERY_MS))
        speeds.append(made_for * 2.0 ** random.uniform(-2.0, 0.5))
    candidate = Candidate(node_id=NodeId(f"n{number:02}"), layer=random.choice(list(Layer)), site=random.choice("ab"))
    return Node(candidate, random.choice((1, 2, 4, 8)), tuple(since_ms), tuple(speeds))


def _requests(random: Random, count: int, *, per_ms: float) -> list[Request]:
    drawn, at_ms = [], 0.0
    for _ in range(count):
        at_ms += random.expovariate(per_ms)
        size_bytes = round(1024 * 2.0 ** random.uniform(-2, 3))
        work_ms = WORK_MS * (size_bytes / 1024) ** 0.3 * random.lognormvariate(0, NOISE)
        drawn.append(Request(at_ms, size_bytes, work_ms))
    return drawn


def simulate(given: World, make: Callable[[Traffic], Strategy]) -> Run:
    """All requests through one strategy, as one manager would."""
    traffic = Traffic()
    strategy = make(traffic)
    by_id = {node.candidate.node_id: _Busy(node) for node in given.nodes}
    candidates = [node.candidate for node in given.nodes]
    ends: list[tuple[float, int, Seen]] = []
    took: list[float] = []
    chosen: list[NodeId] = []
    for number, request in enumerate(given.requests):
        _hear(ends, request.at_ms, traffic, strategy)
        now_ms = round(request.at_ms)
        need = Need(ACTION, now_ms, size_bytes=request.size_bytes)
        choice = strategy.choose(need, candidates, avoid=frozenset())
        assert choice is not None
        node_id = choice.candidate.node_id
        traffic.sent(ACTION, node_id, now_ms)
        end_ms = by_id[node_id].take(request)
        took_ms = end_ms - request.at_ms
        seen = Seen(ACTION, choice.candidate, round(end_ms), round(took_ms), context=choice.context)
        heapq.heappush(ends, (end_ms, number, seen))
        took.append(took_ms)
        chosen.append(node_id)
    return Run(tuple(took), tuple(chosen))


def _hear(ends: list[tuple[float, int, Seen]], now_ms: float, traffic: Traffic, strategy: Strategy) -> None:
    while ends and ends[0][0] <= now_ms:
        _, _, seen = heapq.heappop(ends)
        traffic.ended(seen.action, seen.candidate.node_id, took_ms=seen.took_ms, now_ms=seen.now_ms)
        strategy.learn(seen)


class _Busy:
    """A node at work: first come, first served."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._free_ms = [0.0] * node.slots

    def take(self, request: Request) -> float:
        """When its answer is back."""
        travel_ms = TRAVEL_MS[self._node.candidate.layer]
        start_ms = max(request.at_ms + travel_ms, heapq.heappop(self._free_ms))
        end_ms = start_ms + request.work_ms / self._node.speed(start_ms)
        heapq.heappush(self._free_ms, end_ms)
        return end_ms + travel_ms


def slowed(given: World, node_id: NodeId, *, from_request: int, factor: float) -> World:
    """The same world, where no node changes but one, once: it becomes slower by that much."""
    at_ms = given.requests[from_request].at_ms
    nodes = []
    for node in given.nodes:
        speed = node.speeds[0]
        is_it = node.candidate.node_id == node_id
        nodes.append(
            node._replace(
                since_ms=(0.0, at_ms) if is_it else (0.0,), speeds=(speed, speed / factor) if is_it else (speed,)
            )
        )
    return World(tuple(nodes), given.requests)


def share(nodes: Sequence[NodeId], node_id: NodeId) -> float:
    return sum(each == node_id for each in nodes) / len(nodes)
