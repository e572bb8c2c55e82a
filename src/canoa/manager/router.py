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
from canoa.manager.pools import WHOLE_NODE, Pool
from canoa.store.routed_port import Choice, HealthNote, Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.execution.health import BreakerSettings
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.pools import Doubtful
    from canoa.manager.routing.port import Candidate, Strategy
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
        note: Callable[[HealthNote], None],
    ) -> None:
        self._catalogue = catalogue
        self._strategy = strategy
        self._settings = settings
        self._note = note
        self._lock = threading.Lock()
        self._trials: dict[tuple[NodeId, str], int] = {}  # when they were claimed here: the rows follow later

    def is_known(self, action: ActionName) -> bool:
        return action in self._catalogue.known_actions

    def choose(self, action: ActionName, *, avoid: frozenset[NodeId], now_ms: int) -> Choice | None:
        pool = self._catalogue.pools.by_action.get(action, NOBODY)
        choice = self._fresh(action, pool, avoid=avoid, now_ms=now_ms)
        if choice is not None or not avoid:
            return choice
        choice = self._fresh(action, pool, avoid=NONE_AVOIDED, now_ms=now_ms)
        return None if choice is None else msgspec.structs.replace(choice, why=AGAIN_WHY)

    def _fresh(self, action: ActionName, pool: Pool, *, avoid: frozenset[NodeId], now_ms: int) -> Choice | None:
        if pool.doubtful and (tried := self._trial(pool, avoid, now_ms)) is not None:
            return _choice(tried, TRIAL_WHY)
        if not pool.clear:
            return None
        chosen = self._strategy.choose(action, pool.clear, avoid=avoid, now_ms=now_ms)
        return None if chosen is None else _choice(chosen.candidate, chosen.why)

    # --- Trials -----------------------------------------------------------------------------------------

    def _trial(self, pool: Pool, avoid: frozenset[NodeId], now_ms: int) -> Candidate | None:
        for each in islice(pool.doubtful, TRIALS_LOOKED_AT):
            if not all(health.may_send(row, now_ms, self._settings) for row in each.open_circuits):
                return None  # nor any behind it
            if each.candidate.node_id not in avoid and self._claim(each, now_ms):
                return each.candidate
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


def _choice(candidate: Candidate, why: str) -> Choice:
    return Choice(node_id=candidate.node_id, why=why, timeout_s=candidate.timeout_s, retries=candidate.retries)


_port: type[Route] = Router
