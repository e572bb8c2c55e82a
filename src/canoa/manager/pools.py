"""Who can run which action, kept so that one choice costs little however many nodes there are.

A `Pools` belongs to the event loop and changes node by node; what routes reads `by_action`, which is never changed but
replaced. Only the actions that a change touches are put together anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from canoa.manager.routing.port import Candidate
from canoa.vocabulary import Routing
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from canoa.execution.health import BreakerSettings
    from canoa.execution.placement import Placement
    from canoa.store.routed_port import BreakerRow, NodeRow
    from canoa.vocabulary import ActionName, NodeId

DEFAULT_LIMITS: Final = ActionLimits()
_ROUTINGS: Final = frozenset(Routing)
WHOLE_NODE: Final = ""
"""What stands for the action in the breaker of a node as a whole."""


class Doubtful(NamedTuple):
    """A circuit is open: it gets a trial or nothing."""

    candidate: Candidate
    open_circuits: tuple[BreakerRow, ...]


class Pool(NamedTuple):
    """Those that offer one action and are not silent."""

    clear: tuple[Candidate, ...] = ()
    doubtful: tuple[Doubtful, ...] = ()  # those whose time comes first, first
    routing: Routing | None = None  # that the action asks for, like the next
    placement: Placement | None = None


class Pools:
    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._nodes: dict[NodeId, NodeRow] = {}
        self._circuits: dict[tuple[NodeId, str], BreakerRow] = {}  # open ones only
        self._offering: dict[ActionName, set[NodeId]] = {}
        self._touched: set[ActionName] = set()
        self.by_action: Mapping[ActionName, Pool] = {}

    def put(self, row: NodeRow) -> None:
        """A node that can be sent to, or nothing: one without actions."""
        self.remove(row.node_id)
        self._nodes[row.node_id] = row
        for action in row.actions:
            self._offering.setdefault(action, set()).add(row.node_id)
        self._touched.update(row.actions)

    def remove(self, node_id: NodeId) -> None:
        row = self._nodes.pop(node_id, None)
        for action in row.actions if row else ():
            self._offering[action].discard(node_id)
            self._touched.add(action)

    def put_breaker(self, row: BreakerRow) -> None:
        key = (row.node_id, row.action)
        was_open = self._circuits.pop(key, None)
        if row.failures >= self._settings.max_failures:
            self._circuits[key] = row
        elif was_open is None:
            return
        node = self._nodes.get(row.node_id)
        offered = node.actions if node else ()
        self._touched.update(each for each in offered if row.action in (WHOLE_NODE, each))

    def refresh(self) -> None:
        """Let routing see what changed."""
        if not self._touched:
            return
        pools = dict(self.by_action)
        for action in self._touched:
            pools[action] = self._pool(action, sorted(self._offering.get(action, ())))
        self._touched.clear()
        self.by_action = pools

    def _pool(self, action: ActionName, nodes: Iterable[NodeId]) -> Pool:
        clear, doubtful = [], []
        for node_id in nodes:
            candidate = _candidate(self._nodes[node_id], action)
            circuits = [self._circuits.get((node_id, each)) for each in (WHOLE_NODE, action)]
            open_circuits = tuple(each for each in circuits if each is not None)
            if open_circuits:
                doubtful.append(Doubtful(candidate, open_circuits))
            else:
                clear.append(candidate)
        said = self._said(action)
        routing = Routing(said.routing) if said.routing in _ROUTINGS else None
        placement = said.placement or None
        return Pool(tuple(clear), tuple(sorted(doubtful, key=self._next_trial_ms)), routing, placement)

    def _said(self, action: ActionName) -> ActionLimits:
        """By the node that registered last, of those that say anything: where versions of an app differ, the newest
        counts."""
        offering = [self._nodes[node_id] for node_id in self._offering.get(action, ())]
        saying = [row for row in offering if action in row.limits]
        newest = max(saying, key=lambda row: (row.registered_ms, row.node_id), default=None)
        return DEFAULT_LIMITS if newest is None else newest.limits[action]

    def _next_trial_ms(self, each: Doubtful) -> int:
        return max(
            max(row.down_until_ms, row.trial_ms and row.trial_ms + self._settings.down_ms) for row in each.open_circuits
        )


def _candidate(row: NodeRow, action: ActionName) -> Candidate:
    limits = row.limits.get(action, DEFAULT_LIMITS)
    return Candidate(
        node_id=row.node_id,
        layer=row.layer,
        site=row.site,
        labels=row.labels,
        load=row.load,
        timeout_s=None if limits.timeout is None else limits.timeout / 1000,
        retries=limits.retry,
    )
