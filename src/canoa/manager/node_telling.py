"""What happens to nodes and plans, as events for whoever looks on; see `wire/event.py`.

Each change is told by one manager. What is written, by the one that wrote it: the store says what stood there before,
so of several that write the same at once one sees the change. What comes with time alone, that nobody writes (a node
falls silent, an open circuit may be tried again), by the one that leads. While nobody listens, nothing is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canoa.clock import as_time
from canoa.execution.health import Health, health
from canoa.execution.proof import OUT
from canoa.vocabulary import MQTT_UNHEARD
from canoa.wire.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from canoa.broker.events import Events
    from canoa.manager.catalogue import Catalogue
    from canoa.store.routed_port import HealthNoted, NodeRow, NodesPut
    from canoa.vocabulary import NodeId

NEW, BACK, LEFT, SILENT = "new", "back", "left", "silent"


class NodeTelling:
    """`events`: None where there is nobody to tell."""

    def __init__(self, events: Events | None, catalogue: Catalogue, *, is_leading: Callable[[], bool]) -> None:
        self._events = events
        self._catalogue = catalogue
        self._is_leading = is_leading
        self._silent: frozenset[NodeId] = frozenset()  # at the last look, like the next
        self._down: frozenset[tuple[NodeId, str]] = frozenset()

    # --- What this manager wrote ------------------------------------------------------------------------------

    def on_put(self, rows: Iterable[NodeRow], put: NodesPut, *, why: str | None = None) -> None:
        """`why`: those that left by it did not say so themselves."""
        if self._is_wanted:
            for row in {row.node_id: row for row in rows}.values():
                for kind, said in changes(put.before.get(row.node_id), row):
                    self._tell(kind, row.node_id, **({"text": why} if kind == "node_left" else {}) | said)

    def on_noted(self, noted: HealthNoted) -> None:
        if self._is_wanted:
            now_ms, settings = self._catalogue.now_ms(), self._catalogue.settings.breaker
            for row in noted.rows:
                state = health(row, now_ms, settings)
                if state is not health(noted.before.get((row.node_id, row.action)), now_ms, settings):
                    self._tell_health(row.node_id, row.action, state)

    def on_plan(self, name: str) -> None:
        """It is new, or another one than had the name."""
        if self._is_wanted:
            self._tell("plan_registered", None, plan=name)

    # --- What comes with time ---------------------------------------------------------------------------------

    def on_taken(self, row: NodeRow, before: NodeRow | None) -> None:
        """Into the catalogue: of one that starts again, whoever wrote that has told that it is back."""
        if row.node_id in self._silent and _has_joined(before, row):
            self._silent -= {row.node_id}

    def look(self) -> None:
        """By all managers, every now and then: one that comes to lead tells only what is new from then on."""
        silent, before = self._catalogue.silent, self._silent
        down, open_before = self._circuits_down(), self._down
        self._silent, self._down = silent, down
        if not (self._is_leading() and self._is_wanted):
            return
        for node_id in sorted(silent - before):
            self._tell("node_left", node_id, outcome=SILENT)
        for node_id in sorted(before - silent):
            row = self._catalogue.rows.get(node_id)
            if row is not None and row.actions and row.proof not in OUT:
                self._tell("node_joined", node_id, outcome=BACK)
        for node_id, action in sorted(open_before - down):
            if (node_id, action) in self._catalogue.breakers:
                self._tell_health(node_id, action, Health.RECOVERING)

    def _circuits_down(self) -> frozenset[tuple[NodeId, str]]:
        if not self._catalogue.breakers:  # as almost always
            return frozenset()
        now_ms, settings = self._catalogue.now_ms(), self._catalogue.settings.breaker
        circuits = self._catalogue.breakers.items()
        return frozenset(key for key, row in circuits if health(row, now_ms, settings) is Health.DOWN)

    # --- Telling ----------------------------------------------------------------------------------------------

    @property
    def _is_wanted(self) -> bool:
        return self._events is not None and self._events.are_wanted

    def _tell_health(self, node_id: NodeId, action: str, state: Health) -> None:
        """The action is not the event's: whoever follows an action follows its tasks."""
        self._tell("node_health", node_id, outcome=state.value, text=action or None)

    def _tell(self, kind: str, node_id: NodeId | None, **said: Any) -> None:
        assert self._events is not None
        at = as_time(self._catalogue.now_ms())
        self._events.tell(Event(kind=kind, task_id="", action="", at=at, node_id=node_id, **said))


def changes(before: NodeRow | None, row: NodeRow) -> Iterator[tuple[str, dict[str, str]]]:
    """What an onlooker hears of a row that was written: which event, and what it says. Nothing of loads, tokens and
    signs of life."""
    if not row.actions:
        if before is not None and before.actions:
            yield "node_left", {"outcome": LEFT}
    elif before is None or _has_joined(before, row):
        yield "node_joined", {"outcome": NEW if before is None else BACK}
    else:
        was, now = _facts(before), _facts(row)
        if changed := [name for name, fact in now.items() if fact != was[name]]:
            yield "node_changed", {"text": ", ".join(changed)}
        if row.proof != before.proof:
            yield "node_proof", {"outcome": str(row.proof)}


def _has_joined(before: NodeRow | None, row: NodeRow) -> bool:
    """Or started again. One that comes to name its instance is the one that did not: see `sides.py`."""
    if before is None or not before.actions:
        return bool(row.actions)
    return bool(before.instance) and before.instance != row.instance


def _facts(row: NodeRow) -> dict[str, object]:
    return {
        "actions": frozenset(row.actions),
        "layer": row.layer,
        "site": row.site,
        "type": row.type,
        "endpoint": row.endpoint,
        "labels": row.labels,
        "ways": frozenset(row.all_ways) - {*row.closed, MQTT_UNHEARD},
    }
