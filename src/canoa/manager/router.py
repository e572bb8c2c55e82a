"""Chooses the node of an attempt: a healthy one by the strategy, now and then one whose circuit may close again.

Reads what the catalogue replaces as a whole, so any thread may ask without a lock; only trials are claimed under one.
Two managers may each send a trial before they hear of the other's: that costs one attempt.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from canoa.execution import health
from canoa.execution.health import Sign
from canoa.execution.outcome import OK
from canoa.execution.step_moves import Choice, Need, Route
from canoa.manager.budgets import Budgets
from canoa.manager.inboxes import Inboxes
from canoa.manager.passing import Passing, is_fresh
from canoa.manager.placing import Placer
from canoa.manager.pools import WHOLE_NODE, Pool
from canoa.manager.routing.round_robin import why as in_turns_why
from canoa.manager.unknown import unknown_action
from canoa.store.routed_port import HealthNote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.errors import UnknownAction
    from canoa.execution.health import BreakerSettings
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.pools import Doubtful
    from canoa.manager.routing.port import Candidate
    from canoa.manager.routing.strategies import Strategies
    from canoa.manager.watching import Watching
    from canoa.store.routed_port import Move, Moved, NodeRow
    from canoa.vocabulary import ActionName, NodeId

NOBODY: Final = Pool()
NOWHERE: Final[frozenset[str]] = frozenset()

TRIALS_LOOKED_AT: Final = 16
"""Those whose time comes first are in front. More would make a choice slow where many are claimed, or to be avoided."""

TRIAL_WHY: Final = "a trial, to see whether it has recovered"
AGAIN_WHY: Final = "although it had this step before: nobody else can"


class _Ready(NamedTuple):
    """The choices of those who get a pool's attempts in turns; none: that is not all there is to it. `passed`: what
    they say of others, which holds for a moment."""

    pool: Pool
    choices: tuple[Choice, ...]
    passed: tuple[str, ...] = ()
    at_ms: int = 0


class Router:
    """`note` hears of trials, in the thread that asked. `budgets`: who gets nothing, since enough has travelled;
    `inboxes`: since enough is out there."""

    def __init__(
        self,
        catalogue: Catalogue,
        strategies: Strategies,
        *,
        settings: BreakerSettings,
        watching: Watching,
        note: Callable[[HealthNote], None],
        budgets: Budgets | None = None,
        inboxes: Inboxes | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._strategies = strategies
        self.placer = Placer(strategies.traffic)
        self._settings = settings
        self._watching = watching
        self._note = note
        self.budgets = budgets or Budgets({}, catalogue.clock)
        self.inboxes = inboxes or Inboxes()
        self._passing = Passing(catalogue, self.placer, self.never_why)
        self._ready: dict[ActionName, _Ready] = {}
        self._lock = threading.Lock()
        self._trials: dict[tuple[NodeId, str], int] = {}  # when they were claimed here: the rows follow later

    def is_known(self, action: ActionName) -> bool:
        return action in self._catalogue.known_actions

    def unknown(self, action: ActionName) -> UnknownAction:
        return unknown_action(action, self._catalogue.known_actions)

    def answered_ms(self, node_id: NodeId) -> int | None:
        return self._watching.answered_ms(node_id)

    def since_ms(self) -> int:
        return self._watching.since_ms()

    def choose(self, need: Need) -> Choice | None:
        pool = self._catalogue.pools.by_action.get(need.action, NOBODY)
        choice = self._in_turn(need, pool) or self._choose(need, pool, self.never(pool))
        if choice is not None:
            self.inboxes.sent(choice.node_id)
            if self.budgets.is_limiting:
                self._hold(choice.node_id, need.size_bytes)
        return choice

    def take_back(self, node_id: NodeId, action: ActionName, now_ms: int) -> None:
        self.inboxes.ended({node_id: 1})
        if self._strategies.is_counting:
            self._strategies.freed(action, node_id, now_ms)

    def _in_turn(self, need: Need, pool: Pool) -> Choice | None:
        """As almost always: it asks for nothing, and whoever is next may have it. None: there is more to think of."""
        if need.avoid or need.placement is not None or self.inboxes.full or self.budgets.is_limiting:
            return None
        if not pool.clear:
            return None
        ready = self._ready.get(need.action)
        if ready is None or ready.pool is not pool or not is_fresh(ready.at_ms, need.now_ms):
            ready = self._ready[need.action] = self._made_ready(need, pool, ready)
        if not ready.choices or self._strategies.is_counting:
            return None
        return ready.choices[self._strategies.in_turns.turn(need, pool.clear) % len(ready.choices)]

    def _made_ready(self, need: Need, pool: Pool, before: _Ready | None) -> _Ready:
        if pool.doubtful or pool.placement is not None or not self._strategies.takes_turns(pool.routing):
            return _Ready(pool, (), at_ms=need.now_ms)
        passed = self._passing.words(need, pool, pool.clear, None, avoid=frozenset(), sites=NOWHERE)
        if before is not None and before.pool is pool and before.choices and before.passed == passed:
            return before._replace(at_ms=need.now_ms)
        why = in_turns_why(len(pool.clear))
        return _Ready(pool, tuple(_choice(each, why, passed) for each in pool.clear), passed, need.now_ms)

    def never(self, pool: Pool) -> frozenset[NodeId]:
        """Those of its nodes that get nothing now, perhaps with some that are not its own."""
        full = self.inboxes.full
        if not self.budgets.is_limiting:
            return full
        over = self.budgets.over(pool)
        return over | full if full else over

    def never_why(self, row: NodeRow) -> str:
        """Why it gets nothing now; empty: it may have some."""
        return self.budgets.why(row) or self.inboxes.why(row.node_id)

    def _hold(self, node_id: NodeId, size_bytes: int) -> None:
        """What the chosen one gets is held until it has left."""
        row = self._catalogue.rows.get(node_id)
        if row is not None:
            self.budgets.hold(row, size_bytes)

    def _choose(self, need: Need, pool: Pool, never: frozenset[NodeId]) -> Choice | None:
        """`never`: to be avoided, also where there is nobody else."""
        avoid = need.avoid | never if never else need.avoid
        # Almost never is anything doubtful.
        choice = self._fresh(need, pool, avoid) if pool.doubtful else self._clear(need, pool, avoid)
        if choice is not None or not need.avoid:
            return choice
        choice = self._fresh(need, pool, never)
        return None if choice is None else msgspec.structs.replace(choice, why=AGAIN_WHY)

    def ended(self, written: Sequence[tuple[Move, Moved]]) -> None:
        """Attempts, as they were written, or some that were called off. On the event loop."""
        self.inboxes.ended(_ended_at(written))
        if self._strategies.is_counting:
            for move, moved in written:
                self._learn(moved, move.now_ms)

    def _learn(self, moved: Moved, now_ms: int) -> None:
        for node_id, action in moved.freed:
            self._strategies.freed(action, node_id, now_ms)
        row = self._catalogue.rows.get(moved.node_id) if moved.node_id is not None else None
        if row is not None and moved.action is not None and moved.step_outcome is not None:
            pool = self._catalogue.pools.by_action.get(moved.action, NOBODY)
            is_ok = moved.step_outcome == OK
            self._strategies.ended(pool.routing, row, moved, is_ok=is_ok, now_ms=now_ms)
            self.placer.ended(moved.action, row.layer, took_ms=moved.took_ms, now_ms=now_ms)

    def _fresh(self, need: Need, pool: Pool, avoid: frozenset[NodeId]) -> Choice | None:
        """An attempt that must not fail is a trial only where nobody healthy can have it."""
        tried = self._trial(need, pool, avoid, lambda each: _can_fail(each, need.retries_left))
        if tried is None:
            tried = self._clear(need, pool, avoid)
        return self._trial(need, pool, avoid, lambda _: True) if tried is None else tried

    def _clear(self, need: Need, pool: Pool, avoid: frozenset[NodeId]) -> Choice | None:
        placement = need.placement or pool.placement
        candidates: Sequence[Candidate] = pool.clear
        moved_why, sites = "", NOWHERE
        if placement is not None:
            sites = self.sites(need) if placement.near else NOWHERE
            candidates, moved_why = self.placer.place(need, pool.clear, placement, avoid=avoid, sites=sites)
        chosen = self._strategies.choose(pool.routing, need, candidates, avoid=avoid) if candidates else None
        if chosen is None:
            return None
        is_watched = placement is not None and placement.is_watched
        self._strategies.sent(pool.routing, need, chosen.candidate.node_id, is_watched=is_watched)
        why = f"{chosen.why}, {moved_why}" if moved_why else chosen.why
        passed = self._passing.words(need, pool, candidates, placement, avoid=avoid, sites=sites)
        return _choice(chosen.candidate, why, passed, context=chosen.context)

    def sites(self, need: Need) -> frozenset[str]:
        """Where its input comes from, as far as that is known. Any thread may look: rows are replaced, not changed."""
        if not need.near:
            return frozenset({need.site}) if need.site else frozenset()
        rows = (self._catalogue.rows.get(node_id) for node_id in need.near)
        return frozenset(row.site for row in rows if row is not None and row.site)

    # --- Trials -----------------------------------------------------------------------------------------

    def _trial(
        self, need: Need, pool: Pool, avoid: frozenset[NodeId], is_fit: Callable[[Candidate], bool]
    ) -> Choice | None:
        now_ms = need.now_ms
        for each in islice(filter(self._allowed(need, pool), pool.doubtful), TRIALS_LOOKED_AT):
            if not all(health.may_send(row, now_ms, self._settings) for row in each.open_circuits):
                return None  # nor any behind it
            candidate = each.candidate
            if candidate.node_id not in avoid and is_fit(candidate) and self._claim(each, now_ms):
                self._strategies.sent(pool.routing, need, candidate.node_id)
                return _choice(candidate, TRIAL_WHY)
        return None

    def _allowed(self, need: Need, pool: Pool) -> Callable[[Doubtful], bool]:
        placement = need.placement or pool.placement
        if placement is None:
            return lambda _: True
        sites = self.sites(need) if placement.near == "require" else frozenset()

        def is_allowed(doubtful: Doubtful) -> bool:
            candidate = doubtful.candidate
            return placement.allows(candidate.layer, candidate.labels) and (not sites or candidate.site in sites)

        return is_allowed

    def gets_trial(self, doubtful: Doubtful, need: Need, *, others_can: bool) -> bool:
        """Whether such an attempt, if it may fail, goes there, or, where nobody else can have it, any."""
        now_ms = need.now_ms
        if others_can and not _can_fail(doubtful.candidate, need.retries_left):
            return False
        if not all(health.may_send(row, now_ms, self._settings) for row in doubtful.open_circuits):
            return False
        with self._lock:
            return not any(self._is_claimed((row.node_id, row.action), now_ms) for row in doubtful.open_circuits)

    def _claim(self, doubtful: Doubtful, now_ms: int) -> bool:
        rows = doubtful.open_circuits
        with self._lock:
            if any(self._is_claimed((row.node_id, row.action), now_ms) for row in rows):
                return False
            self._trials.update({(row.node_id, row.action): now_ms for row in rows})
        for row in rows:
            self._note(
                HealthNote(
                    node_id=row.node_id,
                    action=row.action,
                    sign=Sign.TRIAL,
                    is_about_node=row.action == WHOLE_NODE,
                    now_ms=now_ms,
                )
            )
        return True

    def _is_claimed(self, circuit: tuple[NodeId, str], now_ms: int) -> bool:
        """A claim is over when a trial that nobody answers would be."""
        claimed_ms = self._trials.get(circuit)
        if claimed_ms is not None and not 0 <= now_ms - claimed_ms < self._settings.down_ms:
            del self._trials[circuit]
            return False
        return claimed_ms is not None


def _choice(candidate: Candidate, why: str, passed: tuple[str, ...] = (), *, context: tuple[float, ...] = ()) -> Choice:
    return Choice(
        node_id=candidate.node_id,
        why=why,
        passed=passed,
        timeout_s=candidate.timeout_s,
        retries=candidate.retries,
        context=context,
    )


def _ended_at(written: Sequence[tuple[Move, Moved]]) -> dict[NodeId, int]:
    """How many attempts, by node."""
    ended: dict[NodeId, int] = {}
    for _, moved in written:
        if moved.node_id is not None and moved.step_outcome is not None:
            ended[moved.node_id] = ended.get(moved.node_id, 0) + 1
        for node_id, _ in moved.freed:
            ended[node_id] = ended.get(node_id, 0) + 1
    return ended


def _can_fail(candidate: Candidate, retries_left: int | None) -> bool:
    """The step has another attempt then."""
    return (candidate.retries if retries_left is None else retries_left) > 0


_port: type[Route] = Router
