"""What chooses among nodes: candidates in, one of them and the reason out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from canoa.vocabulary import Layer, NodeId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.vocabulary import ActionName


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node that offers the action and may be sent to."""

    node_id: NodeId
    layer: Layer
    site: str = ""
    load: float | None = None  # attempts that run, as a share of those that may; None: it does not say
    timeout_s: float | None = None  # what it says about the action, like the next
    retries: int = 0


class Chosen(NamedTuple):
    candidate: Candidate
    why: str  # for people: this node and no other


class Strategy(Protocol):
    """Called from any thread, while rows are locked: quick, without waiting."""

    def choose(
        self, action: ActionName, candidates: Sequence[Candidate], *, avoid: frozenset[NodeId], now_ms: int
    ) -> Chosen | None:
        """One of them, none of `avoid`. None: there is no other. `candidates` have the order of their ids, and stay the
        same object until one of them changes."""
