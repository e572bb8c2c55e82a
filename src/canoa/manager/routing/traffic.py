"""What this manager has sent to each node and not heard of again, and how long answers take. Pure: times come in.

Answers come to any manager, so each sees about as many as it sent, and not the same ones: what is out is an estimate
that forgets, or it would drift. A node takes at least as long as the oldest answer that it owes is due.
"""

from __future__ import annotations

import threading
from collections import deque
from math import exp
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from canoa.vocabulary import ActionName, NodeId

FORGET_AFTER: Final = 8
"""Times as long as its answers take: what a node is still thought to owe then has been answered to somebody else."""

FORGET_MS: Final = 2_000.0
"""But not sooner, however quick its answers are."""

UNHEARD_FORGET_MS: Final = 60_000.0
"""Of a node that has not answered yet: nobody knows how long it takes."""

OWES: Final = 0.5
"""Attempts: what is less is only left of the estimate."""

REMEMBERED: Final = 64
"""Attempts that are out at one node, by when they were sent."""

MEAN_WEIGHT: Final = 0.1
"""Of the newest answer in how long a node's answers take."""

PEAK_DECAY_MS: Final = 10_000.0
"""In which a peak loses two thirds of its height. Shorter forgives sooner, and tries what is slow more often."""


FAILED_TIMES: Final = 4.0
"""As long as an answer takes there: that is what one counts for that says that the action failed. Higher keeps away
sooner from a node where it fails, and from all where it is the input's fault."""

LONGEST_MS: Final = 60_000.0
"""That such a one counts for: many of them must not add up for ever."""


class _Node(msgspec.Struct):
    out: float = 0.0
    at_ms: int = 0  # when `out` was that much
    sent_ms: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=REMEMBERED))  # the last of what is out
    mean_ms: float = 0.0  # of how long its answers take


class _Peak(msgspec.Struct):
    ms: float
    at_ms: int


class Traffic:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[NodeId, _Node] = {}
        self._peaks: dict[tuple[ActionName, NodeId], _Peak] = {}

    def sent(self, node_id: NodeId, now_ms: int) -> None:
        with self._lock:
            node = self._nodes.get(node_id)
            if node is None:
                node = self._nodes[node_id] = _Node(at_ms=now_ms)
            out = _out(node, now_ms)
            node.out, node.at_ms = out + 1, now_ms
            node.sent_ms.append(now_ms)
            while len(node.sent_ms) > node.out + OWES:  # others heard of their ends
                node.sent_ms.popleft()

    def ended(
        self, action: ActionName, node_id: NodeId, *, took_ms: int | None, is_ok: bool = True, now_ms: int
    ) -> None:
        """`took_ms` None: there was no answer. `is_ok` False: the action failed."""
        with self._lock:
            node = self._nodes.get(node_id)
            if node is None:  # sent before this manager came
                node = self._nodes[node_id] = _Node(at_ms=now_ms)
            node.out, node.at_ms = max(0.0, _out(node, now_ms) - 1), now_ms
            if node.sent_ms:
                node.sent_ms.popleft()  # the oldest: most nodes answer in turn
            if took_ms is None:
                return
            if is_ok:
                node.mean_ms += MEAN_WEIGHT * (took_ms - node.mean_ms) if node.mean_ms else took_ms
                self._raise_peak((action, node_id), took_ms, now_ms)
            else:
                counts_for_ms = min(LONGEST_MS, FAILED_TIMES * node.mean_ms)
                self._raise_peak((action, node_id), max(took_ms, counts_for_ms), now_ms)

    def _raise_peak(self, key: tuple[ActionName, NodeId], took_ms: float, now_ms: int) -> None:
        peak = self._peaks.get(key)
        if peak is None:
            self._peaks[key] = _Peak(took_ms, now_ms)
            return
        keep = exp((peak.at_ms - now_ms) / PEAK_DECAY_MS) if now_ms > peak.at_ms else 1.0
        peak.ms = max(took_ms, peak.ms * keep + took_ms * (1 - keep))
        peak.at_ms = now_ms

    def out(self, node_id: NodeId, now_ms: int) -> float:
        """Attempts without an answer, of all actions."""
        node = self._nodes.get(node_id)
        return 0.0 if node is None else _out(node, now_ms)

    def out_and_oldest_ms(self, node_id: NodeId, now_ms: int) -> tuple[float, int]:
        """And for how long the oldest of them has been out."""
        node = self._nodes.get(node_id)
        if node is None:
            return 0.0, 0
        out, sent_ms = _out(node, now_ms), node.sent_ms
        return out, max(0, now_ms - sent_ms[0]) if out >= OWES and sent_ms else 0

    def peak_ms(self, action: ActionName, node_id: NodeId, now_ms: int) -> float | None:
        """What an answer took at worst, lately; None: nothing is known."""
        peak = self._peaks.get((action, node_id))
        _, oldest_ms = self.out_and_oldest_ms(node_id, now_ms)
        if peak is None:
            return oldest_ms or None
        return max(oldest_ms, peak.ms * exp(min(0, peak.at_ms - now_ms) / PEAK_DECAY_MS))

    def forget(self, node_id: NodeId) -> None:
        with self._lock:
            self._nodes.pop(node_id, None)
            for key in [key for key in self._peaks if key[1] == node_id]:
                del self._peaks[key]


def _out(node: _Node, now_ms: int) -> float:
    after_ms = now_ms - node.at_ms
    if after_ms <= 0 or not node.out:
        return node.out
    forget_ms = max(FORGET_MS, FORGET_AFTER * node.mean_ms) if node.mean_ms else UNHEARD_FORGET_MS
    return node.out * exp(-after_ms / forget_ms)
