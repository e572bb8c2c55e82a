"""What travels between a manager and its nodes, in bytes: counted by node, and by layer, way and direction.

Bodies of messages and answers as they travel, after compression; without headers and what protocols add. Each manager
counts for itself, in memory since it started; whoever wants them all together adds up the metric.
"""

from __future__ import annotations

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
    from canoa.vocabulary import Layer, NodeId

OUT: Final = "out"  # to nodes
IN: Final = "in"


class _Total:
    """Of a layer and a way."""

    __slots__ = ("in_bytes", "out_bytes")

    def __init__(self) -> None:
        self.out_bytes = 0
        self.in_bytes = 0


class _Account:
    """Of a node, with the totals that it counts for, by way: to look them up by layer would cost more than all else."""

    __slots__ = ("in_bytes", "layer", "out_bytes", "totals")

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.out_bytes = 0
        self.in_bytes = 0
        self.totals: dict[str, _Total] = {}


class Links:
    """`rows`: of all nodes that are known. Belongs to the event loop."""

    def __init__(self, rows: Mapping[NodeId, NodeRow], budgets: Budgets) -> None:
        self._rows = rows
        self._budgets = budgets
        self._accounts: dict[NodeId, _Account] = {}
        self._totals: dict[tuple[Layer, str], _Total] = {}

    def sent(self, node: NodeRow, way: str, size_bytes: int, *, held_bytes: int) -> None:
        if size_bytes:
            account = self._account(node)
            account.out_bytes += size_bytes
            self._total(account, way).out_bytes += size_bytes
        if self._budgets.is_limiting:
            self._budgets.spend(node, size_bytes, held_bytes=held_bytes)

    def received(self, node_id: NodeId, delivery: Delivery) -> None:
        """An answer to an attempt of that node's."""
        row = self._rows.get(node_id)
        if row is None:
            return
        size_bytes = len(delivery.message.body)
        account = self._accounts.get(node_id)
        if account is None or account.layer is not row.layer:
            account = self._account(row)
        account.in_bytes += size_bytes
        way = came_by(delivery)
        total = account.totals.get(way) or self._total(account, way)
        total.in_bytes += size_bytes
        if self._budgets.is_limiting:
            self._budgets.spend(row, size_bytes)

    def use(self, row: NodeRow) -> LinkUse:
        account = self._accounts.get(row.node_id) or _Account(row.layer)
        over_why = self._budgets.why(row) if self._budgets.is_limiting else ""
        return LinkUse(account.out_bytes, account.in_bytes, over_why)

    def totals(self) -> dict[tuple[str, str, str], int]:
        """By layer, way and direction."""
        counted: dict[tuple[str, str, str], int] = {}
        for (layer, way), total in self._totals.items():
            counted[layer.value, way, OUT] = total.out_bytes
            counted[layer.value, way, IN] = total.in_bytes
        return counted

    def forget(self, node_id: NodeId) -> None:
        """The totals stay: what travelled, did."""
        self._accounts.pop(node_id, None)
        self._budgets.forget(node_id)

    def _account(self, row: NodeRow) -> _Account:
        account = self._accounts.get(row.node_id)
        if account is None or account.layer is not row.layer:
            account = self._accounts[row.node_id] = _moved(account, row.layer)
        return account

    def _total(self, account: _Account, way: str) -> _Total:
        total = account.totals.get(way)
        if total is None:
            total = account.totals[way] = self._totals.setdefault((account.layer, way), _Total())
        return total


def _moved(before: _Account | None, layer: Layer) -> _Account:
    """A new one, or one of a node that stands in another layer since."""
    account = _Account(layer)
    if before is not None:
        account.out_bytes, account.in_bytes = before.out_bytes, before.in_bytes
    return account


def came_by(delivery: Delivery) -> str:
    """By which way."""
    origin = delivery.whole.delivery if isinstance(delivery, PartDelivery) else delivery
    headers = origin.message.headers
    if isinstance(origin, DirectDelivery):
        # The door's own mark counts: whoever posts may write there whatever he likes.
        return MQTT_LINK if sapparchi.BY_MQTT_LINK in headers and sapparchi.BY_HTTP not in headers else HTTP
    return MQTT if sapparchi.BY_MQTT in headers else AMQP


_meter: type[Meter] = Links
