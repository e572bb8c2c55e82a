"""By which way a node is reached. Pure: ways, failures and times in, a way out.

The order is the publication's, by layer. A way that failed is left alone for a while, longer each time, so that work
goes on by the next one; then it is tried again, so that work comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.vocabulary import AMQP, HTTP, MQTT, MQTT_LINK, MQTT_UNHEARD, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from canoa.vocabulary import NodeId

ORDER: Final[dict[Layer, tuple[str, ...]]] = {
    Layer.CLOUD: (AMQP, MQTT, MQTT_LINK, MQTT_UNHEARD, HTTP),
    Layer.FOG: (AMQP, MQTT, MQTT_LINK, MQTT_UNHEARD, HTTP),
    Layer.EDGE: (MQTT, MQTT_LINK, MQTT_UNHEARD, HTTP, AMQP),  # a device has no AMQP, as published; one of ours may
}

AGAIN_AFTER_S: Final = 2.0
AGAIN_AT_MOST_S: Final = 60.0
"""Longer loses less to a way that stays closed, and comes back to it later."""

MAX_DOUBLINGS: Final = 10


def ordered(layer: Layer, ways: Iterable[str]) -> tuple[str, ...]:
    """As a node of that layer is to be reached, the preferred one first; without what nobody speaks."""
    found = frozenset(ways)
    return tuple(way for way in ORDER[layer] if way in found)


class Closed:
    """Which ways to which nodes failed last. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._until_s: dict[tuple[NodeId, str], float] = {}
        self._failures: dict[tuple[NodeId, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def failed(self, node_id: NodeId, way: str, now_s: float) -> None:
        key = (node_id, way)
        if now_s < self._until_s.get(key, 0.0):
            return  # of several that were under way when it closed, one counts
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._until_s[key] = now_s + min(AGAIN_AFTER_S * 2 ** min(failures, MAX_DOUBLINGS), AGAIN_AT_MOST_S)

    def worked(self, node_id: NodeId, way: str) -> None:
        self._until_s.pop((node_id, way), None)
        self._failures.pop((node_id, way), None)

    def forget(self, node_id: NodeId) -> None:
        for way in ORDER[Layer.CLOUD]:
            self.worked(node_id, way)

    def is_open(self, node_id: NodeId, way: str, now_s: float) -> bool:
        return now_s >= self._until_s.get((node_id, way), 0.0)

    def first(self, node_id: NodeId, ways: Sequence[str], now_s: float, *, is_up: Callable[[str], bool]) -> str | None:
        """The best of them: one that is open and up, or else one that is up, or else the first. None of none."""
        up = [way for way in ways if is_up(way)]
        open_ways = [way for way in up if self.is_open(node_id, way, now_s)]
        return next(iter(open_ways or up or ways), None)
