"""What happened to a task, as it travels on `topology.EVENTS`, in JSON lists. Nothing depends on hearing them."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What happened to a task: `accepted`, `progress`, `ended`, `dead`, `redriven`; to a step of a routed one:
    `step_sent`, `step_ended`; to a listener that was too slow and missed some: `lagged`."""

    kind: str
    task_id: str
    action: str
    at: datetime
    outcome: str | None = None
    progress: float | None = None
    text: str | None = None
    node_id: str | None = None
    attempt: int | None = None
    step: str | None = None  # of a routed task
