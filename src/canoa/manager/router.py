"""Chooses the node of an attempt: a healthy one by the strategy, now and then one whose circuit may close again.

Reads what the catalogue replaces as a whole, so any thread may ask without a lock; only trials are claimed under one.
Two managers may each send a trial before they hear of the other's: that costs one attempt.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.execution import health
from canoa.execution.health import Sign
from canoa.execution.step_moves import Choice, Route
from canoa.manager.pools import WHOLE_NODE, Pool
from canoa.store.routed_port import HealthNote

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.execution.health import BreakerSettings
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.pools import Doubtful
    from canoa.manager.routing.port import Candidate, Strategy
    from canoa.manager.watching import Watching
    from canoa.vocabulary import ActionName, NodeId

NOBODY: Final = Pool()
NONE_AVOIDED: Final[frozenset[NodeId]] = frozenset()

TRIALS_LOOKED_AT: Final = 16
"""Those whose time comes first are in front. More would make a choice slow where many are claimed, or to be avoided."""

TRIAL_WHY: Final = "a trial, to see whether it has recovered"
AGAIN_WHY: Final = "although it had this step before: nobody else can"


class Router:
    """`note` hears of trials, in the thread that asked."""

    def __init__(
        self,
        catalogue: Catalogue,
        strategy: Strategy,
        *,
        settings: BreakerSettings,
        watching: Watching,
        note: Callable[[HealthNote], None],
    ) -> None:
        self._catalogue = catalogue
        self._strategy = strategy
        self._settings = settings
        self._watching = watching
        self._note = note
        self._lock = threading.Lock()
        self._trials: dict[tuple[NodeId, str], int] = {}  # when they were claimed here: the rows follow later

    def is_known(self, action: ActionName) -> bool:
        return action in self._catalogue.known_actions

    def answered_ms(self, node_id: NodeId) -> int | None:
        return self._watching.answered_ms(node_id)

    def since_ms(self) -> int:
        return self._watching.since_ms()

    def choose(
        self, action: ActionName, *, avoid: frozenset[NodeId], now_ms: int, retries_left: int | None = None
    ) -> Choice | None:
        pool = self._catalogue.pools.by_action.get(action, NOBODY)
        if pool.doubtful:
            choice = self._fresh(action, pool, avoid=avoid, now_ms=now_ms, retries_left=retries_left)
        else:  # as almost always
            choice = self._clear(action, pool, avoid=avoid, now_ms=now_ms)
        if choice is not None or not avoid:
            return choice
        choice = self._fresh(action, pool, avoid=NONE_AVOIDED, now_ms=now_ms, retries_left=retries_left)
        return None if choice is None else msgspec.structs.replace(choice, why=AGAIN_WHY)

    def _fresh(
        self, action: ActionName, pool: Pool, *, avoid: frozenset[NodeId], now_ms: int, retries_left: int | None
    ) -> Choice | None:
        """An attempt that must not fail is a trial only where nobody healthy can have it."""
        tried = self._trial(pool, avoid, now_ms, lambda each: _can_fail(each, retries_left))
        if tried is None:
            tried = self._clear(action, pool, avoid=avoid, now_ms=now_ms)
        return self._trial(pool, avoid, now_ms, lambda _: True) if tried is None else tried

    def _clear(self, action: ActionName, pool: Pool, *, avoid: frozenset[NodeId], now_ms: int) -> Choice | None:
        chosen = self._strategy.choose(action, pool.clear, avoid=avoid, now_ms=now_ms) if pool.clear else None
        return None if chosen is None else _choice(chosen.candidate, chosen.why)

    # --- Trials -----------------------------------------------------------------------------------------

    def _trial(
        self, pool: Pool, avoid: frozenset[NodeId], now_ms: int, is_fit: Callable[[Candidate], bool]
    ) -> Choice | None:
        for each in islice(pool.doubtful, TRIALS_LOOKED_AT):
            if not all(health.may_send(row, now_ms, self._settings) for row in each.open_circuits):
                return None  # nor any behind it
            candidate = each.candidate
            if candidate.node_id not in avoid and is_fit(candidate) and self._claim(each, now_ms):
                return _choice(candidate, TRIAL_WHY)
        return None

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


def _can_fail(candidate: Candidate, retries_left: int | None) -> bool:
    """The step has another attempt then."""
    return (candidate.retries if retries_left is None else retries_left) > 0


def _choice(candidate: Candidate, why: str) -> Choice:
    return Choice(node_id=candidate.node_id, why=why, timeout_s=candidate.timeout_s, retries=candidate.retries)


_port: type[Route] = Router
