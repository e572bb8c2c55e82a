"""What travels between a manager and its nodes, in bytes: counted by node, and by layer, way and direction.

Bodies of messages and answers as they travel, after compression; without headers and what protocols add. Each manager
counts for itself, in memory since it started; whoever wants them all together adds up the metric.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from canoa.broker.bundled import PartDelivery
from canoa.broker.direct import DirectDelivery
from canoa.execution.link_budget import LinkUse
from canoa.vocabulary import AMQP, HTTP, MQTT, MQTT_LINK
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.broker.port import Delivery
    from canoa.manager.budgets import Budgets
    from canoa.store.routed_port import NodeRow
    from canoa.transports.reaching import Meter
    from canoa.vocabulary import NodeId

OUT: Final = "out"  # to nodes
IN: Final = "in"


class Links:
    """`rows`: of all nodes that are known. Belongs to the event loop."""

    def __init__(self, rows: Mapping[NodeId, NodeRow], budgets: Budgets) -> None:
        self._rows = rows
        self._budgets = budgets
        self._out: Counter[NodeId] = Counter()
        self._in: Counter[NodeId] = Counter()
        self.totals: Counter[tuple[str, str, str]] = Counter()
        """By layer, way and direction."""

    def sent(self, node: NodeRow, way: str, size_bytes: int, *, plain_bytes: int) -> None:
        if size_bytes:
            self._out[node.node_id] += size_bytes
            self.totals[node.layer.value, way, OUT] += size_bytes
        if self._budgets.is_limiting:
            self._budgets.spend(node, size_bytes, held_bytes=plain_bytes)

    def received(self, node_id: NodeId, delivery: Delivery) -> None:
        """An answer to an attempt of that node's."""
        row = self._rows.get(node_id)
        if row is None:
            return
        size_bytes = len(delivery.message.body)
        self._in[node_id] += size_bytes
        self.totals[row.layer.value, came_by(delivery), IN] += size_bytes
        if self._budgets.is_limiting:
            self._budgets.spend(row, size_bytes)

    def use(self, row: NodeRow) -> LinkUse:
        over_why = self._budgets.why(row) if self._budgets.is_limiting else ""
        return LinkUse(self._out[row.node_id], self._in[row.node_id], over_why)

    def forget(self, node_id: NodeId) -> None:
        """The totals stay: what travelled, did."""
        self._out.pop(node_id, None)
        self._in.pop(node_id, None)
        self._budgets.forget(node_id)


def came_by(delivery: Delivery) -> str:
    """By which way."""
    origin = delivery.whole.delivery if isinstance(delivery, PartDelivery) else delivery
    headers = origin.message.headers
    if isinstance(origin, DirectDelivery):
        return MQTT_LINK if sapparchi.BY_MQTT_LINK in headers else HTTP
    return MQTT if sapparchi.BY_MQTT in headers else AMQP


_meter: type[Meter] = Links
