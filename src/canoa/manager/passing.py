"""Who was passed over when an attempt was sent, and why: `canoa task show` says of then what `canoa explain` says of
now. Told with every attempt but trials, whose reason says it all. For any thread.

Almost always nobody is to be avoided, and the words of a moment ago hold. Otherwise they are made anew, but for those
who are away: to find them is to look at every node that there is.
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

FEW: Final = 32
"""So many to be avoided are put in order. Of more, those are told that come first among all: they are soon found."""

HOLDS_MS: Final = 300
"""How old words may be: silence and tides turn without any change of a pool. What is made of them may be that old
again."""

MAX_CACHED: Final = 1_000


class _Told(NamedTuple):
    """Where nobody is to be avoided. Holds for a moment, as long as the others are the same."""

    words: tuple[str, ...]
    at_ms: int
    pool: Pool
    candidates: Sequence[Candidate]
    placement: Placement | None  # kept: what is freed may leave its id to another one

    def holds(self, pool: Pool, candidates: Sequence[Candidate], now_ms: int) -> bool:
        is_same = self.candidates is candidates or self.candidates == candidates
        return self.pool is pool and is_same and is_fresh(self.at_ms, now_ms)


class _Away(NamedTuple):
    """The first of those who are, and one more than are told. Holds likewise."""

    nodes: tuple[tuple[str, str], ...]
    at_ms: int
    pool: Pool


def is_fresh(at_ms: int, now_ms: int) -> bool:
    return 0 <= now_ms - at_ms < HOLDS_MS  # and not a clock that was set back


class Passing:
    """`never_why`: of a node that gets nothing now, whoever else there is; empty: it may."""

    def __init__(self, catalogue: Catalogue, placer: Placer, never_why: Callable[[NodeRow], str]) -> None:
        self._catalogue = catalogue
        self._placer = placer
        self._never_why = never_why
        self._told: dict[tuple[ActionName, int, frozenset[str]], _Told] = {}
        self._gone: dict[ActionName, _Away] = {}

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
        placing = Placing(placement, "action" if need.placement is None else "step", sites)
        if avoid:
            return _in_words(self._passed(need, pool, candidates, avoid, placing))
        key = (need.action, id(placement), sites)
        told = self._told.get(key)
        if told is None or not told.holds(pool, candidates, need.now_ms):
            words = _in_words(self._passed(need, pool, candidates, avoid, placing))
            told = _Told(words, need.now_ms, pool, candidates, placement)
            if len(self._told) >= MAX_CACHED:
                self._told.clear()
            self._told[key] = told
        return told.words

    def _passed(
        self, need: Need, pool: Pool, candidates: Sequence[Candidate], avoid: frozenset[NodeId], placing: Placing
    ) -> Iterator[tuple[str, str]]:
        """Those first that an onlooker would have expected to get it."""
        return chain(
            self._avoided(avoid, need, pool),
            _doubtful(pool, avoid),
            self._left_out(need, pool, candidates, avoid, placing),
            (away for away in self._away(need, pool) if away[0] not in avoid),
        )

    def _avoided(self, avoid: frozenset[NodeId], need: Need, pool: Pool) -> Iterator[tuple[str, str]]:
        in_order = (each.node_id for each in pool.clear if each.node_id in avoid)
        for node_id in sorted(avoid) if len(avoid) <= FEW else in_order:
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
        away = self._gone.get(need.action)
        if away is None or away.pool is not pool or not is_fresh(away.at_ms, need.now_ms):
            found = islice(self._absent(need, pool), MAX_TOLD + 1)
            if len(self._gone) >= MAX_CACHED:
                self._gone.clear()
            away = self._gone[need.action] = _Away(tuple(found), need.now_ms, pool)
        yield from away.nodes

    def _absent(self, need: Need, pool: Pool) -> Iterator[tuple[str, str]]:
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
