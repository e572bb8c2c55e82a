"""Which nodes and layers have used up what may travel to and from them, and get no work until there is room again.

The arithmetic is in `execution/link_budget.py`. Routing asks from any thread; what travels is told by the event loop.
Managers tell each other what they counted: each of them sees only some of it.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from canoa.errors import SettingError
from canoa.execution.link_budget import Window, parse_budget
from canoa.vocabulary import Layer, NodeId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.clock import Clock
    from canoa.execution.link_budget import LinkBudget
    from canoa.manager.pools import Pool
    from canoa.store.routed_port import NodeRow

K = TypeVar("K", NodeId, Layer)

ENVELOPE_BYTES: Final = 120
"""What stands around an input on its way, at least: names and ids."""


class Spent(NamedTuple):
    """What one manager counted since it last told."""

    nodes: dict[NodeId, int]
    layers: dict[Layer, int]


class Budgets:
    """`by_layer`: of all nodes of a layer together. A node says its own when it registers."""

    def __init__(self, by_layer: Mapping[Layer, LinkBudget], clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: _Windows[NodeId] = _Windows()
        self._layers: _Windows[Layer] = _Windows()
        for layer, budget in by_layer.items():
            self._layers.by_key[layer] = Window(budget)
        self.is_limiting = bool(by_layer)  # whether anybody has a budget at all

    def know(self, row: NodeRow) -> None:
        """What it says now. A new budget begins with all its room."""
        known = self._nodes.by_key.get(row.node_id)
        if (known.budget.text if known else "") == row.link_budget:
            return
        with self._lock:
            self._nodes.forget(row.node_id)
            budget = _read(row.link_budget)
            if budget is not None:
                self._nodes.by_key[row.node_id] = Window(budget)
            self.is_limiting = bool(self._nodes.by_key or self._layers.by_key)

    def forget(self, node_id: NodeId) -> None:
        if node_id in self._nodes.by_key:
            with self._lock:
                self._nodes.forget(node_id)
                self.is_limiting = bool(self._nodes.by_key or self._layers.by_key)

    # --- For routing --------------------------------------------------------------------------------------

    def over(self, pool: Pool) -> frozenset[NodeId]:
        """Those of its nodes that get no work now, perhaps with some that are not its own."""
        now_ms = self._now_ms()
        if self._nodes.is_due(now_ms) or self._layers.is_due(now_ms):
            with self._lock:
                self._nodes.look_at_all(now_ms)
                self._layers.look_at_all(now_ms)
        layers = self._layers.over
        if not layers:
            return self._nodes.over
        candidates = (*pool.clear, *(each.candidate for each in pool.doubtful))
        return self._nodes.over.union(each.node_id for each in candidates if each.layer in layers)

    def hold(self, row: NodeRow, input_bytes: int) -> None:
        """It is about to get that much."""
        now_ms, size_bytes = self._now_ms(), input_bytes + ENVELOPE_BYTES
        with self._lock:
            self._nodes.hold(row.node_id, size_bytes, now_ms)
            self._layers.hold(row.layer, size_bytes, now_ms)

    def why(self, row: NodeRow) -> str:
        """Why it gets no work now; empty: it may have some."""
        now_ms = self._now_ms()
        with self._lock:
            return self._nodes.why("its", row.node_id, now_ms) or self._layers.why("its layer's", row.layer, now_ms)

    # --- What travels -------------------------------------------------------------------------------------

    def spend(self, row: NodeRow, size_bytes: int, *, held_bytes: int = 0) -> None:
        """It travelled, or was not sent after all and only what was held for it is given back."""
        now_ms = self._now_ms()
        with self._lock:
            self._nodes.spend(row.node_id, size_bytes, held_bytes, now_ms)
            self._layers.spend(row.layer, size_bytes, held_bytes, now_ms)

    def take_untold(self) -> Spent | None:
        """What this manager counted since it was last asked; None: nothing."""
        if not self._nodes.untold and not self._layers.untold:
            return None
        with self._lock:
            return Spent(self._nodes.take_untold(), self._layers.take_untold())

    def others_spent(self, spent: Spent) -> None:
        now_ms = self._now_ms()
        with self._lock:
            self._nodes.others_spent(spent.nodes, now_ms)
            self._layers.others_spent(spent.layers, now_ms)

    def _now_ms(self) -> float:
        return 1000 * self._clock.monotonic_s()


class _Windows(Generic[K]):
    """Of all nodes, or of all layers, that have a budget. Changed under the lock; `over` is replaced, never changed."""

    def __init__(self) -> None:
        self.by_key: dict[K, Window] = {}
        self.over: frozenset[K] = frozenset()
        self.untold: Counter[K] = Counter()
        self._due_ms = math.inf  # when one that is over may have room again

    def is_due(self, now_ms: float) -> bool:
        return now_ms >= self._due_ms

    def forget(self, key: K) -> None:
        self.by_key.pop(key, None)
        self.untold.pop(key, None)
        self.over -= {key}

    def hold(self, key: K, size_bytes: int, now_ms: float) -> None:
        window = self.by_key.get(key)
        if window is not None:
            window.hold(size_bytes, now_ms)
            self._look_at(key, window, now_ms)

    def spend(self, key: K, size_bytes: int, held_bytes: int, now_ms: float) -> None:
        window = self.by_key.get(key)
        if window is not None:
            window.release(held_bytes)
            window.spend(size_bytes, now_ms)
            self.untold[key] += size_bytes
            self._look_at(key, window, now_ms)

    def others_spent(self, spent: Mapping[K, int], now_ms: float) -> None:
        for key, size_bytes in spent.items():
            window = self.by_key.get(key)
            if window is not None and size_bytes > 0:
                window.spend(size_bytes, now_ms)
                self._look_at(key, window, now_ms)

    def take_untold(self) -> dict[K, int]:
        taken, self.untold = self.untold, Counter()
        return {key: size_bytes for key, size_bytes in taken.items() if size_bytes}

    def look_at_all(self, now_ms: float) -> None:
        self._due_ms = math.inf
        for key in self.over:
            self._look_at(key, self.by_key[key], now_ms)

    def why(self, whose: str, key: K, now_ms: float) -> str:
        window = self.by_key.get(key)
        if window is None or window.has_room(now_ms):
            return ""
        left_s = (window.room_at_ms(now_ms) - now_ms) / 1000
        return f"{whose} link budget of {window.budget.text} is used up, for {left_s:.0f} s more"

    def _look_at(self, key: K, window: Window, now_ms: float) -> None:
        at_ms = window.room_at_ms(now_ms)
        if at_ms > now_ms:
            self._due_ms = min(self._due_ms, at_ms)
            if key not in self.over:
                self.over |= {key}
        elif key in self.over:
            self.over -= {key}


def _read(text: str) -> LinkBudget | None:
    """What another version of Canoa wrote down, and this one does not understand, is none."""
    try:
        return parse_budget("link_budget", text) if text else None
    except SettingError:
        return None
