"""When a node that says nothing is silent. Pure: times in, answers out.

A sign of life is a registration or an answer. How old one is, is counted by this process's own clock: the stamps that
managers share were made by clocks that may jump, so a stamp says only *that* there was a sign since the last look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canoa.vocabulary import NodeId


class Signs:
    """The last sign of life of every node, and which of them nobody has written down."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._stamp_ms: dict[NodeId, int] = {}
        self._heard_s: dict[NodeId, float] = {}  # by this process's clock
        self._registered_s: dict[NodeId, float] = {}
        self._unwritten: dict[NodeId, int] = {}

    def heard(self, node_id: NodeId, *, now_ms: int, now_s: float, is_registration: bool = False) -> None:
        """From the node itself."""
        self._stamp_ms[node_id], self._heard_s[node_id] = now_ms, now_s
        self._unwritten[node_id] = now_ms
        if is_registration:
            self._registered_s[node_id] = now_s

    def read(self, node_id: NodeId, seen_ms: int, *, now_ms: int, now_s: float) -> None:
        """From the store. The stamp that is known already is no new sign, and one of the future is one of now."""
        known_ms = self._stamp_ms.get(node_id)
        if known_ms == seen_ms:
            return
        heard_s = now_s - max(0, now_ms - seen_ms) / 1000
        if known_ms is None or heard_s > self._heard_s[node_id]:
            self._stamp_ms[node_id], self._heard_s[node_id] = seen_ms, heard_s

    def forget(self, node_id: NodeId) -> None:
        for memory in (self._stamp_ms, self._heard_s, self._registered_s, self._unwritten):
            memory.pop(node_id, None)

    def age_s(self, node_id: NodeId, now_s: float) -> float:
        """Since its last sign; without end where there never was one."""
        return now_s - self._heard_s.get(node_id, float("-inf"))

    def registered_s_ago(self, node_id: NodeId, now_s: float) -> float:
        """Since it registered here; where another manager heard that, any sign has to do."""
        return now_s - self._registered_s.get(node_id, self._heard_s.get(node_id, float("-inf")))

    def is_silent(self, node_id: NodeId, now_s: float) -> bool:
        return self.age_s(node_id, now_s) > self._silence_s

    def silent(self, nodes: Iterable[NodeId], now_s: float) -> frozenset[NodeId]:
        return frozenset(node_id for node_id in nodes if self.is_silent(node_id, now_s))

    def newest_ms(self) -> int:
        return max(self._stamp_ms.values(), default=0)

    def take_unwritten(self) -> dict[NodeId, int]:
        taken, self._unwritten = self._unwritten, {}
        return taken

    def give_back(self, signs: dict[NodeId, int]) -> None:
        """They could not be written; newer ones count more."""
        self._unwritten = signs | self._unwritten
