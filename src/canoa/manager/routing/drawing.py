"""A few candidates drawn at random: looking at all of them would take longer the more there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from canoa.manager.routing.port import Candidate
    from canoa.vocabulary import NodeId

NAMED: Final = 3
"""Of those that were looked at and not chosen: so many are told beside the one that was, the nearest first."""


def drawn(
    candidates: Sequence[Candidate], avoid: frozenset[NodeId], *, at_most: int, random: Random
) -> Sequence[Candidate]:
    """Different ones, none of `avoid`; all of them where they are no more than that."""
    length = len(candidates)
    if avoid and length <= at_most + len(avoid):
        candidates = [each for each in candidates if each.node_id not in avoid]
        length = len(candidates)
    if length <= at_most:
        return candidates
    found: dict[int, Candidate] = {}
    while len(found) < at_most:  # `random.sample` takes three times as long
        place = int(random.random() * length)
        if place not in found and candidates[place].node_id not in avoid:
            found[place] = candidates[place]
    return [*found.values()]
