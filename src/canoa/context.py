"""What an action may know about its own run: attempt, deadline, cancel flag, logger, idempotency key.

An action asks for it with a first parameter annotated `Context`; callers do not pass it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from canoa.errors import TaskCancelled
from canoa.logs import get_logger

if TYPE_CHECKING:
    from canoa.vocabulary import ActionName, TaskId


Report: TypeAlias = Callable[[float | None, str], None]
"""Where progress goes: how much is done, and a few words. Called from any thread."""

MAX_PROGRESS_CHARS = 200


class Context:
    """One attempt at one task. Safe to use from the action's thread."""

    def __init__(
        self,
        *,
        task_id: TaskId,
        action: ActionName,
        attempt: int = 1,
        deadline: float | None = None,
        idempotency_key: str | None = None,
        node_id: str = "local",
        trace_id: str | None = None,
        span_id: str | None = None,
        report: Report | None = None,
    ) -> None:
        self.task_id = task_id
        self.action = action
        self.attempt = attempt
        self.deadline = deadline
        """When this attempt will be ended, in epoch seconds; None: never."""
        self.idempotency_key = idempotency_key or task_id
        """Stable over attempts and duplicates: what to deduplicate side effects by."""
        self.node_id = node_id
        self.trace_id = trace_id
        self.span_id = span_id
        """Of this attempt, where OpenTelemetry is used."""
        self._is_cancelled = False
        self._report = report

    def facts(self) -> dict[str, Any]:
        """What makes another one like it, in another process."""
        return {
            "task_id": self.task_id,
            "action": self.action,
            "attempt": self.attempt,
            "deadline": self.deadline,
            "idempotency_key": self.idempotency_key,
            "node_id": self.node_id,
            "trace_id": self.trace_id,
            "span_id": self.span_id,
        }

    @property
    def remaining_s(self) -> float | None:
        """Time left until the deadline, never negative; None: no limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.time())

    @property
    def is_cancelled(self) -> bool:
        """True once the task was cancelled or ran over its time. Threads cannot be interrupted: look at it often."""
        return self._is_cancelled

    def raise_if_cancelled(self) -> None:
        if self._is_cancelled:
            raise TaskCancelled(f"task {self.task_id} was cancelled or ran over its time", task_id=self.task_id)

    def progress(self, fraction: float | None = None, text: str = "") -> None:
        """Tell those who look on how far it is: `ctx.progress(0.4, "resizing")`. Costs next to nothing to call often:
        of many reports within a fifth of a second only the last one is sent."""
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"progress is {fraction!r}; use 0 (begun) to 1 (done), or None where nobody knows")
        if self._report is not None:
            self._report(fraction, text[:MAX_PROGRESS_CHARS])

    @property
    def logger(self) -> Any:
        """Structured, bound to this attempt: `ctx.logger.info("resized", width=80)`."""
        facts: dict[str, Any] = {"task_id": self.task_id, "action": self.action, "attempt": self.attempt}
        if self.trace_id is not None:
            facts["trace_id"] = self.trace_id
        if self.span_id is not None:
            facts["span_id"] = self.span_id
        return get_logger("canoa.action").bind(**facts)

    def cancel(self) -> None:
        """Set the flag. The worker calls it; calling it by hand in a test is fine."""
        self._is_cancelled = True
