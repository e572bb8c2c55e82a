"""One action as a worker offers it: its figures, and what happens with a delivery of it. Ends are decided elsewhere.

Two ways lead to an action: its shared queue (`pooled.py`), and the node's own, through which managers reach it
(`routed.py`). Lanes, limits and the runner know only what is here.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from canoa.broker.port import Settlement

if TYPE_CHECKING:
    from canoa.action import Action
    from canoa.broker.port import Delivery
    from canoa.execution import rules
    from canoa.execution.outcome import Outcome
    from canoa.execution.policy import Policy
    from canoa.execution.prefetch import RunEstimate
    from canoa.vocabulary import ActionName
    from canoa.wire import result
    from canoa.wire.task import Task
    from canoa.worker.metrics import ActionStats
    from canoa.worker.settling import Settler

POSTPONED_S: Final = 1.0

RECOUNTED_S: Final = 0.1
"""How long a counted copy waits: one that ends its worker at once must not do so before the original is acknowledged,
or both would come again, and the original's count would never grow."""


class Encoded(NamedTuple):
    """A result that was encoded where it was made, as JSON."""

    body: bytes


class Offer(ABC):
    """Every delivery ends in exactly one of the methods below, and is no longer ours afterwards."""

    is_routed = False
    """Whether managers send what it runs, and retry it."""

    def __init__(
        self,
        action: Action[..., Any, Any],
        settler: Settler,
        *,
        policy: Policy,
        stats: ActionStats,
        estimate: RunEstimate,
        queue: str,
        max_payload_bytes: int,
    ) -> None:
        self.action = action
        self.name: ActionName = action.name
        self.policy = policy
        self.is_limited = policy.rate is not None or policy.concurrency is not None
        self.stats = stats
        self.estimate = estimate
        self.queue = queue
        self.max_payload_bytes = max_payload_bytes
        self._settler = settler

    def now_s(self) -> float:
        """By which its tasks' deadlines are read."""
        return time.time()

    def policy_for(self, known: Task) -> Policy:
        """The action's, or what the caller asked for."""
        if known.retries is None and known.timeout_s is None:
            return self.policy
        retries = self.policy.retries if known.retries is None else known.retries
        timeout_s = self.policy.timeout_s if known.timeout_s is None else known.timeout_s
        return msgspec.structs.replace(self.policy, retries=retries, timeout_s=timeout_s)

    # --- What comes again -----------------------------------------------------------------------

    def absorbs(self, delivery: Delivery) -> bool:
        """True: it runs here already, or was answered from here, and gets that answer. A pool knows no such thing."""
        return False

    def begun(self, delivery: Delivery) -> None:  # noqa: B027  # a pool has nothing to note
        """Its attempt starts: from here on its copies are absorbed, where they are."""

    # --- Ends -----------------------------------------------------------------------------------

    @abstractmethod
    def succeed(self, known: Task, delivery: Delivery, value: Any) -> None:
        """Raises `Unencodable` or `PayloadTooLarge`, also where nobody waits: such a result is a bug to be heard of."""

    @abstractmethod
    def end_badly(self, known: Task, delivery: Delivery, end: rules.End, what: result.Failure) -> None:
        """An attempt that did not succeed."""

    @abstractmethod
    def fail(self, known: Task, delivery: Delivery, outcome: Outcome, what: result.Failure) -> None:
        """For good."""

    @abstractmethod
    def poison(self, known: Task, delivery: Delivery, why: str) -> None: ...

    @abstractmethod
    def skip(self, known: Task, delivery: Delivery) -> None:
        """Cancelled before it started."""

    @abstractmethod
    def refuse_message(self, delivery: Delivery, why: str) -> None:
        """Not even a task."""

    # --- Not here, not now ----------------------------------------------------------------------

    @abstractmethod
    def hand_back(self, delivery: Delivery) -> None:
        """Untouched: this worker leaves."""

    @abstractmethod
    def recount(self, known: Task, delivery: Delivery, crashes: int, *, as_suspect: bool) -> None:
        """It comes again, with this count."""

    @abstractmethod
    def wait(self, delivery: Delivery, wait_s: float) -> None:
        """To a rung, and back to the queue it came from: not an attempt, not a crash."""

    def postpone(self, delivery: Delivery) -> None:
        """A suspect that cannot run alone here now: back in a second, and not counted."""
        self.wait(delivery, POSTPONED_S)

    def requeue(self, delivery: Delivery) -> None:
        """As the broker would, had this worker died: the next one counts it."""
        delivery.settle(Settlement.REQUEUE)
        self._settler.dropped()
