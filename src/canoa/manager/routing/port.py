"""What chooses among nodes: candidates in, one of them and the reason out; how it went comes back later."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from canoa.vocabulary import ActionName, Layer, NodeId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.execution.step_moves import Need


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node that offers the action and may be sent to."""

    node_id: NodeId
    layer: Layer
    site: str = ""
    labels: dict[str, str] = {}
    load: float | None = None  # attempts that run, as a share of those that may; None: it does not say
    timeout_s: float | None = None  # what it says about the action, like the next
    retries: int = 0


class Chosen(msgspec.Struct, frozen=True, gc=False):
    candidate: Candidate
    why: str  # for people: this node and no other
    context: tuple[float, ...] = ()  # what the strategy knew: it comes back with what came of it


class Seen(NamedTuple):
    """The end of an attempt: also of one that another manager had sent."""

    action: ActionName
    candidate: Candidate
    now_ms: int
    took_ms: int | None  # from sending to answer; None: there was no answer
    is_ok: bool = True  # False: the action failed
    context: tuple[float, ...] = ()  # as the strategy gave it that chose


class Rated(NamedTuple):
    """What a strategy thinks of a candidate, for people."""

    candidate: Candidate
    score: float  # lower is better
    why: str


class Strategy(Protocol):
    """Called from any thread, while rows are locked: quick, without waiting. One object serves all actions."""

    def choose(self, need: Need, candidates: Sequence[Candidate], *, avoid: frozenset[NodeId]) -> Chosen | None:
        """One of them, none of `avoid`. None: there is no other. `candidates` have the order of their ids, and stay the
        same object until one of them changes."""

    def learn(self, seen: Seen) -> None:
        """Of attempts that this strategy chose a node for."""

    def rate(self, need: Need, candidates: Sequence[Candidate]) -> list[Rated]:
        """All of them, the best first. Changes nothing."""
