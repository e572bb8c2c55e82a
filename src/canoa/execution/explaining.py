"""Where an attempt would go now, and why: every node that offers the action, what speaks for it, what rules it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from canoa.execution.placement import Placement
    from canoa.vocabulary import ActionName, Layer, NodeId, Routing


class Considered(NamedTuple):
    node_id: NodeId
    layer: Layer
    site: str
    score: float | None = None  # lower is better, in the strategy's own measure; None: it is ruled out
    why: str = ""  # the strategy's words
    ruled_out: str = ""  # what keeps it from being chosen; empty: nothing


class Explained(NamedTuple):
    """`considered`: the best first, then those that are ruled out. `placement`: the one that counts, the step's own or
    its action's."""

    action: ActionName
    routing: Routing
    considered: tuple[Considered, ...]
    placement: Placement | None = None
