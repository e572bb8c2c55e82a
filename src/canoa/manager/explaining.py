"""Says where an attempt would go now, without sending one: what `canoa explain` shows. On the event loop.

Asked with the same `Need` as the router, so that a plan's step is explained by what it says itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.execution import health
from canoa.execution.explaining import Considered, Explained
from canoa.execution.health import Health
from canoa.manager.catalogue import offered
from canoa.manager.placing import Placed
from canoa.manager.pools import Pool
from canoa.manager.ruled_out import Placing, away_why, elsewhere_why, last_circuit, whose_circuit

if TYPE_CHECKING:
    from canoa.execution.step_moves import Need
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.placing import Placer
    from canoa.manager.pools import Doubtful
    from canoa.manager.router import Router
    from canoa.manager.routing.port import Candidate
    from canoa.manager.routing.strategies import Strategies
    from canoa.store.routed_port import NodeRow
    from canoa.vocabulary import ActionName, NodeId


def _placing(router: Router, pool: Pool, need: Need) -> Placing:
    placement = need.placement or pool.placement
    sites = router.sites(need) if placement is not None and placement.near else frozenset()
    return Placing(placement, "action" if need.placement is None else "step", sites)


def explained(catalogue: Catalogue, strategies: Strategies, router: Router, need: Need) -> Explained:
    """Raises `UnknownAction` where nobody ever offered it."""
    action = need.action
    if action not in catalogue.known_actions:
        raise router.unknown(action)
    pool = catalogue.pools.by_action.get(action, Pool())
    placing = _placing(router, pool, need)
    over = _over(catalogue, router, pool)
    spent = frozenset(each.node_id for each in over)
    rated = _rated(strategies, router.placer, pool, need, placing, avoid=spent)
    doubtful = [
        _doubtful(catalogue, router, each, need, placing, others_can=bool(rated))
        for each in pool.doubtful
        if each.candidate.node_id not in spent
    ]
    able = [_with_refusal(catalogue, each) for each in doubtful if not each.ruled_out]
    able += [_with_refusal(catalogue, each) for each in rated]
    seen = {each.node_id for each in able} | spent
    left_out = [each for each in pool.clear if each.node_id not in seen]
    used = {each.layer for each in rated}
    others = [_elsewhere(each, action, placing, router.placer, is_used=each.layer in used) for each in left_out]
    others += [*(each for each in doubtful if each.ruled_out), *over]
    seen |= {each.node_id for each in others}
    others += [_away(catalogue, row, need.now_ms) for row in _offering(catalogue, action) if row.node_id not in seen]
    return Explained(action, strategies.name(pool.routing), (*able, *others), placing.placement)


def _over(catalogue: Catalogue, router: Router, pool: Pool) -> list[Considered]:
    """Those that get nothing now, whoever else there is: their link budget is used up, or they are full."""
    over = router.never(pool)
    offering = [*pool.clear, *(each.candidate for each in pool.doubtful)] if over else []
    rows = [catalogue.rows[each.node_id] for each in offering if each.node_id in over]
    return [Considered(row.node_id, row.layer, row.site, ruled_out=router.never_why(row)) for row in rows]


def _rated(
    strategies: Strategies,
    placer: Placer,
    pool: Pool,
    need: Need,
    placing: Placing,
    *,
    avoid: frozenset[NodeId],
) -> list[Considered]:
    placed = Placed(pool.clear)
    if placing.placement is not None:
        placed = placer.place(need, pool.clear, placing.placement, avoid=avoid, sites=placing.sites)
    rated = strategies.of(pool.routing).rate(need, placed.candidates)
    return [Considered(c.node_id, c.layer, c.site, score, why) for c, score, why in rated if c.node_id not in avoid]


def _with_refusal(catalogue: Catalogue, able: Considered) -> Considered:
    """One that can be chosen, and is reached by fewer ways than it offers."""
    refused = catalogue.endpoint_refusal(catalogue.rows[able.node_id])
    return able._replace(why=f"{able.why}; its endpoint is not called: {refused}") if refused else able


def _elsewhere(
    candidate: Candidate, action: ActionName, placing: Placing, placer: Placer, *, is_used: bool
) -> Considered:
    why = elsewhere_why(candidate, action, placing, placer, is_used=is_used)
    return Considered(candidate.node_id, candidate.layer, candidate.site, ruled_out=why)


def _doubtful(
    catalogue: Catalogue, router: Router, doubtful: Doubtful, need: Need, placing: Placing, *, others_can: bool
) -> Considered:
    candidate = doubtful.candidate
    found = Considered(candidate.node_id, candidate.layer, candidate.site)
    if not placing.allows(candidate):
        return found._replace(ruled_out=f"the {placing.whose}'s placement does not allow it, and a circuit is open")
    if router.gets_trial(doubtful, need, others_can=others_can):
        return found._replace(why="RECOVERING: the next attempt that may fail is its trial")
    return found._replace(ruled_out=_open_why(catalogue, doubtful, need.now_ms))


def _open_why(catalogue: Catalogue, doubtful: Doubtful, now_ms: int) -> str:
    circuit = last_circuit(doubtful)
    of = whose_circuit(circuit)
    if health.health(circuit, now_ms, catalogue.settings.breaker) is Health.DOWN:
        left_s = (circuit.down_until_ms - now_ms) / 1000
        return f"{of} is DOWN after {circuit.failures} failures, for {left_s:.0f} s more"
    return f"{of} is RECOVERING: its trial is out, or waits for an attempt that may fail"


def _away(catalogue: Catalogue, row: NodeRow, now_ms: int) -> Considered:
    return Considered(row.node_id, row.layer, row.site, ruled_out=away_why(catalogue, row, now_ms))


def _offering(catalogue: Catalogue, action: ActionName) -> list[NodeRow]:
    rows = (row for row in catalogue.rows.values() if action in offered(row) or action in row.actions)
    return sorted(rows, key=lambda row: row.node_id)
