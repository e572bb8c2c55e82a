"""What this manager has sent to each node and not heard of again, and how long answers take. Pure: times come in.

Answers come to any manager, so each sees about as many as it sent, and not the same ones: what is out is an estimate
that forgets, or it would drift. A node takes at least as long for an action as the oldest answer about it is due.
"""

from __future__ import annotations

import threading
from collections import deque
from math import exp
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.vocabulary import ActionName

if TYPE_CHECKING:
    from canoa.vocabulary import NodeId

FORGET_AFTER: Final = 8
"""Times as long as its answers take: what a node is still thought to owe then has been answered to somebody else."""

FORGET_MS: Final = 2_000.0
"""But not sooner, however quick its answers are."""

UNHEARD_FORGET_MS: Final = 60_000.0
"""Of a node that has not answered yet: nobody knows how long it takes."""

OWES: Final = 0.5
"""Attempts: what is less is only left of the estimate."""

REMEMBERED: Final = 64
"""Attempts of an action that are out at one node, by when they were sent."""

MEAN_WEIGHT: Final = 0.1
"""Of the newest answer in how long answers take."""

PEAK_DECAY_MS: Final = 10_000.0
"""In which a peak loses two thirds of its height. Shorter forgives sooner, and tries what is slow more often."""

PEAK_FLOOR: Final = 0.1
"""Of the mean, and at least a millisecond: below that no peak falls. What costs nothing would get all of a crowd."""

FAILED_TIMES: Final = 4.0
"""As long as an answer takes there: that is what one counts for that says that the action failed. Higher keeps away
sooner from a node where it fails, and from all where it is the input's fault."""

UNHEARD_MS: Final = 1_000.0
"""What an answer is thought to take where none ever came that was good."""

LONGEST_MS: Final = 60_000.0
"""That a failure counts for: many of them must not add up for ever."""


class _Count(msgspec.Struct):
    """Of attempts without an answer, and of the time that answers take."""

    out: float = 0.0
    at_ms: int = 0  # when `out` was that much
    mean_ms: float = 0.0

    def now(self, now_ms: int) -> float:
        after_ms = now_ms - self.at_ms
        if after_ms <= 0 or not self.out:
            return self.out
        forget_ms = max(FORGET_MS, FORGET_AFTER * self.mean_ms) if self.mean_ms else UNHEARD_FORGET_MS
        return self.out * exp(-after_ms / forget_ms)

    def add(self, change: int, now_ms: int) -> None:
        self.out, self.at_ms = max(0.0, self.now(now_ms) + change), now_ms

    def took(self, took_ms: int) -> None:
        self.mean_ms += MEAN_WEIGHT * (took_ms - self.mean_ms) if self.mean_ms else took_ms


class _Pair(msgspec.Struct):
    """An action at a node."""

    count: _Count
    sent_ms: deque[int]  # of the last that are out
    peak_ms: float = 0.0
    peaked_ms: int = 0  # when that was its height

    def oldest_ms(self, now_ms: int) -> int:
        """How long the oldest has been out."""
        sent_ms = self.sent_ms
        return max(0, now_ms - sent_ms[0]) if sent_ms and self.count.now(now_ms) >= OWES else 0

    def sent(self, now_ms: int) -> None:
        self.count.add(1, now_ms)
        self.sent_ms.append(now_ms)
        while len(self.sent_ms) > self.count.out + OWES:  # others heard of their ends
            self.sent_ms.popleft()

    def ended(self, now_ms: int) -> None:
        self.count.add(-1, now_ms)
        if self.sent_ms:
            self.sent_ms.popleft()  # the oldest: most nodes answer in turn

    def raise_peak(self, took_ms: float, now_ms: int) -> None:
        keep = exp(min(0, self.peaked_ms - now_ms) / PEAK_DECAY_MS) if self.peaked_ms else 0.0
        self.peak_ms = max(took_ms, self.peak_ms * keep + took_ms * (1 - keep))
        self.peaked_ms = now_ms


class _Node(msgspec.Struct):
    count: _Count
    pairs: dict[ActionName, _Pair]


class Traffic:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[NodeId, _Node] = {}

    def sent(self, action: ActionName, node_id: NodeId, now_ms: int) -> None:
        with self._lock:
            node, pair = self._known(action, node_id)
            node.count.add(1, now_ms)
            pair.sent(now_ms)

    def ended(
        self, action: ActionName, node_id: NodeId, *, took_ms: int | None, is_ok: bool = True, now_ms: int
    ) -> None:
        """`took_ms` None: there was no answer. `is_ok` False: the action failed."""
        with self._lock:
            node, pair = self._known(action, node_id)
            node.count.add(-1, now_ms)
            pair.ended(now_ms)
            if took_ms is None:
                return
            if is_ok:
                node.count.took(took_ms)
                pair.count.took(took_ms)
                pair.raise_peak(took_ms, now_ms)
            else:
                counts_for_ms = min(LONGEST_MS, FAILED_TIMES * (pair.count.mean_ms or UNHEARD_MS))
                pair.raise_peak(max(took_ms, counts_for_ms), now_ms)

    def _known(self, action: ActionName, node_id: NodeId) -> tuple[_Node, _Pair]:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node(_Count(), {})
        pair = node.pairs.get(action)
        if pair is None:
            pair = node.pairs[action] = _Pair(_Count(), deque(maxlen=REMEMBERED))
        return node, pair

    def out(self, node_id: NodeId, now_ms: int) -> float:
        """Attempts without an answer, of all actions."""
        node = self._nodes.get(node_id)
        return 0.0 if node is None else node.count.now(now_ms)

    def out_and_oldest_ms(self, action: ActionName, node_id: NodeId, now_ms: int) -> tuple[float, int]:
        """And for how long the oldest of this action has been out."""
        node = self._nodes.get(node_id)
        if node is None:
            return 0.0, 0
        pair = node.pairs.get(action)
        return node.count.now(now_ms), 0 if pair is None else pair.oldest_ms(now_ms)

    def peak_ms(self, action: ActionName, node_id: NodeId, now_ms: int) -> float | None:
        """What an answer took at worst, lately; None: nothing is known."""
        node = self._nodes.get(node_id)
        pair = None if node is None else node.pairs.get(action)
        if pair is None:
            return None
        oldest_ms = pair.oldest_ms(now_ms)
        if not pair.peaked_ms:
            return oldest_ms or None
        decayed_ms = pair.peak_ms * exp(min(0, pair.peaked_ms - now_ms) / PEAK_DECAY_MS)
        return max(oldest_ms, decayed_ms, PEAK_FLOOR * pair.count.mean_ms, 1.0)

    def forget(self, node_id: NodeId) -> None:
        with self._lock:
            self._nodes.pop(node_id, None)
