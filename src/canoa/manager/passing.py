"""Who was passed over when an attempt was sent, and why: `canoa task show` says of then what `canoa explain` says of
now. Told with every attempt, and made once for as long as nothing changes. For any thread.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from canoa.manager.ruled_out import Placing, away_why, elsewhere_why, last_circuit, whose_circuit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from canoa.execution.placement import Placement
    from canoa.execution.step_moves import Need
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.placing import Placer
    from canoa.manager.pools import Pool
    from canoa.manager.routing.port import Candidate
    from canoa.store.routed_port import NodeRow
    from canoa.vocabulary import ActionName, NodeId

MAX_TOLD: Final = 5
"""Nodes. More would fill the store with what few people read."""

MAX_CACHED: Final = 1_000


class _Told(NamedTuple):
    """Holds as long as the others are the same."""

    words: tuple[str, ...]
    pool: Pool
    candidates: Sequence[Candidate]
    avoid: frozenset[NodeId]
    placement: Placement | None  # kept: what is freed may leave its id to another one

    def holds(self, pool: Pool, candidates: Sequence[Candidate], avoid: frozenset[NodeId]) -> bool:
        is_same = self.candidates is candidates or self.candidates == candidates
        return self.pool is pool and is_same and self.avoid == avoid


class Passing:
    """`never_why`: of a node that gets nothing now, whoever else there is; empty: it may."""

    def __init__(self, catalogue: Catalogue, placer: Placer, never_why: Callable[[NodeRow], str]) -> None:
        self._catalogue = catalogue
        self._placer = placer
        self._never_why = never_why
        self._told: dict[tuple[ActionName, int, frozenset[str]], _Told] = {}

    def words(
        self,
        need: Need,
        pool: Pool,
        candidates: Sequence[Candidate],
        placement: Placement | None,
        *,
        avoid: frozenset[NodeId],
        sites: frozenset[str],
    ) -> tuple[str, ...]:
        """`candidates`: of which one was chosen; why not another of them, its strategy says. `sites`: to which it is to
        be near."""
        key = (need.action, id(placement), sites)
        told = self._told.get(key)
        if told is None or not told.holds(pool, candidates, avoid):
            placing = Placing(placement, "action" if need.placement is None else "step", sites)
            words = _in_words(self._passed(need, pool, candidates, avoid, placing))
            told = _Told(words, pool, candidates, avoid, placement)
            if len(self._told) >= MAX_CACHED:
                self._told.clear()
            self._told[key] = told
        return told.words

    def _passed(
        self, need: Need, pool: Pool, candidates: Sequence[Candidate], avoid: frozenset[NodeId], placing: Placing
    ) -> Iterator[tuple[str, str]]:
        """Those first that an onlooker would have expected to get it."""
        return chain(
            self._avoided(avoid, need),
            _doubtful(pool, avoid),
            self._left_out(need, pool, candidates, avoid, placing),
            self._away(need, pool),
        )

    def _avoided(self, avoid: frozenset[NodeId], need: Need) -> Iterator[tuple[str, str]]:
        for node_id in sorted(avoid):
            row = self._catalogue.rows.get(node_id)
            if row is not None and need.action in row.actions:
                yield node_id, self._never_why(row) or "it had an attempt before"

    def _left_out(
        self, need: Need, pool: Pool, candidates: Sequence[Candidate], avoid: frozenset[NodeId], placing: Placing
    ) -> Iterator[tuple[str, str]]:
        if candidates is pool.clear or placing.placement is None:
            return
        taken = {each.node_id for each in candidates} | avoid
        used = {each.layer for each in candidates}
        for each in pool.clear:
            if each.node_id not in taken:
                is_used = each.layer in used
                yield each.node_id, elsewhere_why(each, need.action, placing, self._placer, is_used=is_used)

    def _away(self, need: Need, pool: Pool) -> Iterator[tuple[str, str]]:
        """Those that did not say that they leave."""
        there = {each.node_id for each in pool.clear} | {each.candidate.node_id for each in pool.doubtful}
        for row in list(self._catalogue.rows.values()):  # in one go: the event loop may change it meanwhile
            if need.action in row.actions and row.node_id not in there:
                yield row.node_id, away_why(self._catalogue, row, need.now_ms)


def _doubtful(pool: Pool, avoid: frozenset[NodeId]) -> Iterator[tuple[str, str]]:
    for each in pool.doubtful:
        if each.candidate.node_id not in avoid:
            circuit = last_circuit(each)
            yield each.candidate.node_id, f"the circuit of {whose_circuit(circuit)} is open"


def _in_words(passed: Iterator[tuple[str, str]]) -> tuple[str, ...]:
    told = [f"{node_id}: {why}" for node_id, why in islice(passed, MAX_TOLD)]
    if next(passed, None) is not None:
        told.append("some others")
    return tuple(told)
