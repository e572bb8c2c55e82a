"""What a manager has seen with its own eyes: since when it watches, and when each node last answered.

Whoever begins to watch, or whose clock was set, does not know what happened before: no silence counts from earlier.
Any thread may ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canoa.clock import Clock
    from canoa.vocabulary import NodeId

JUMP_MS: Final = 10_000
"""What the wall clock may gain or lose against the steady one between two questions. Less would take a clock that is
being corrected, or a busy machine, for one that was set."""

MAX_CANARIES: Final = 10_000
MAX_CANARY_CHARS: Final = 400
"""Anybody may answer what nobody asked."""


class Watching:
    """`answered` and `take_untold` belong to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = self._wall_ahead_ms()
        self._since_ms = self._now_ms()
        self._answered_ms: dict[NodeId, int] = {}
        self._untold: set[NodeId] = set()
        self._canaries: set[str] = set()

    def since_ms(self) -> int:
        """Since when nothing was missed."""
        ahead_ms = self._wall_ahead_ms()
        if abs(ahead_ms - self._ahead_ms) > JUMP_MS:
            self._since_ms = self._now_ms()
            self._answered_ms = {}
        self._ahead_ms = ahead_ms
        return self._since_ms

    def answered_ms(self, node_id: NodeId) -> int | None:
        return self._answered_ms.get(node_id)

    def answered(self, node_id: NodeId) -> None:
        """It ended an attempt, and this manager was told."""
        self._answered_ms[node_id] = self._now_ms()
        self._untold.add(node_id)

    def others_heard(self, node_ids: Iterable[NodeId]) -> None:
        """Other managers were told, by now. A stamp of ours: their clocks are not ours."""
        now_ms = self._now_ms()
        self._answered_ms.update((node_id, now_ms) for node_id in node_ids)

    def take_untold(self) -> list[NodeId]:
        """Who answered since the last time this was asked."""
        taken, self._untold = self._untold, set()
        return list(taken)

    def canary_answered(self, request_id: str) -> None:
        """By the way of all answers: another manager may have sent it."""
        if len(self._canaries) < MAX_CANARIES and len(request_id) <= MAX_CANARY_CHARS:
            self._canaries.add(request_id)

    def take_canaries(self) -> list[str]:
        """Those since the last time this was asked."""
        taken, self._canaries = self._canaries, set()
        return list(taken)

    def forget(self, node_ids: Iterable[NodeId]) -> None:
        for node_id in node_ids:
            self._answered_ms.pop(node_id, None)

    def _now_ms(self) -> int:
        return int(self._clock.now_s() * 1000)

    def _wall_ahead_ms(self) -> float:
        return 1000 * (self._clock.now_s() - self._clock.monotonic_s())
