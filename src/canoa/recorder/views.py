"""What the desk tells: the shapes that the HTTP API, the system actions and the CLI show. Times are UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - FastAPI reads the annotations
from typing import Any

from canoa.wire.event import Event as Event


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """How one submit differs from the action's own settings. None: as the action says."""

    timeout: float | None = None
    retry: int | None = None
    queue_timeout: float | None = None
    priority: int | None = None
    idempotency_key: str | None = None
    after: float | None = None  # seconds from now
    at: datetime | None = None  # not before
    site: str | None = None  # of a routed task: where whoever submits it stands


@dataclass(frozen=True, kw_only=True)
class Request:
    """One task to submit. `arguments`: keyed by parameter."""

    action: str
    arguments: dict[str, Any] = field(default_factory=dict)
    options: SubmitOptions = SubmitOptions()


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """Accepted, and stored. `is_new` is False when its idempotency key was known: then it is that task's id."""

    id: str
    action: str
    is_new: bool = True


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """`started_at`: of the attempt that ended it, or is known last; of a routed task, of its first one. `took_s`: from
    when it was submitted, or was due, until it ended: with all waiting, travelling, retries and runs."""

    id: str
    action: str
    state: str
    outcome: str | None
    submitted_at: datetime
    due_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    attempts: int
    node_id: str | None
    error: str | None
    progress: float | None
    progress_text: str | None
    run: int
    took_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ResultView:
    """`result` is there when `outcome` is `ok`; `traceback` is the worker's. While it has not ended: neither."""

    task: TaskView
    result: Any = None
    error_type: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, kw_only=True)
class TaskPage:
    """`next`: give it as `cursor` for the page behind this one; None: this was the last."""

    tasks: list[TaskView]
    next: str | None


@dataclass(frozen=True, kw_only=True)
class LetterView:
    task_id: str
    action: str
    reason: str
    error: str
    traceback: str
    attempts: int
    node_id: str | None
    origin: str
    dead_at: datetime


@dataclass(frozen=True, kw_only=True)
class LetterPage:
    letters: list[LetterView]
    next: str | None


@dataclass(frozen=True, kw_only=True)
class Redriven:
    """`skipped`: not among the dead letters, or redriven before."""

    redriven: list[str]
    skipped: list[str]


@dataclass(frozen=True, kw_only=True)
class ActionView:
    """What an app offers; `waiting` and `workers` as the broker sees it, None where its queue does not exist yet."""

    action: str
    parameters: str
    runs: str
    timeout_s: float | None
    retry: int
    waiting: int | None = None
    workers: int | None = None
