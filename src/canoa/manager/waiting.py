"""A registration that waits to be written: what a node says, put together from all that came of it meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from canoa.broker.direct import DirectDelivery
from canoa.errors import StoreUnreachable
from canoa.manager.links import came_by
from canoa.manager.owning import may_leave
from canoa.manager.sides import closes, joined, without

if TYPE_CHECKING:
    from canoa.broker.port import Delivery
    from canoa.store.routed_port import NodeRow


class Waiting(NamedTuple):
    """What a node says now, and what brought it: the last delivery of each way, all of which are answered."""

    claim: NodeRow
    deliveries: dict[str, Delivery]
    by: frozenset[str]  # the ways by which it named its instance

    def settle(self) -> None:
        for delivery in self.deliveries.values():
            delivery.settle()

    def joined(self, known: NodeRow | None) -> Waiting:
        """With what its other ways said."""
        return self._replace(claim=joined(known, self.claim, by=self.by))

    def after(self, before: Waiting) -> Waiting:
        """In the place of an earlier one. The farewell of yet another node, such as the last will of a predecessor, is
        nothing to the one that waits; nor is one that ends less than that."""
        known, claim = before.claim, self.claim
        if claim.actions:
            return self.joined(known)._instead_of(before)
        if not known.actions:
            return before._with(self) if _ends_less(claim, known) else self._instead_of(before)
        if ways := closes(known, claim):
            return self._replace(claim=without(known, ways))._instead_of(before)
        if may_leave(known, claim):
            return self._instead_of(before)
        return before._with(self)

    def _with(self, later: Waiting) -> Waiting:
        later.settle()
        return self

    def _instead_of(self, before: Waiting) -> Waiting:
        """The same node's deliveries stay to be answered, and another one's must come again."""
        is_one = before.claim.instance == self.claim.instance
        for way, delivery in before.deliveries.items():
            if not is_one or way in self.deliveries:
                _supersede(delivery)
        if not is_one:
            return self
        return Waiting(self.claim, before.deliveries | self.deliveries, before.by | self.by)


def _ends_less(farewell: NodeRow, whole: NodeRow) -> bool:
    """One way of a node that has said goodbye with all of them: over MQTT 3.1.1 it cannot even name its instance."""
    is_its_own = farewell.instance in (whole.instance, "")
    return bool(whole.instance) and not whole.closed and is_its_own and (not farewell.instance or bool(farewell.closed))


def waiting_for(claim: NodeRow, delivery: Delivery) -> Waiting:
    way = came_by(delivery)
    return Waiting(claim, {way: delivery}, frozenset({way}) if claim.instance else frozenset())


def _supersede(delivery: Delivery) -> None:
    """Whoever posted it would take what is said of another one for an answer."""
    if isinstance(delivery, DirectDelivery):
        delivery.error = StoreUnreachable("another registration under the same id came meanwhile; try again")
    delivery.settle()
