"""What happened to tasks, nodes and plans, as it travels on `topology.EVENTS`, in JSON lists. Nothing depends on it."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What happened to a task: `accepted`, `progress`, `ended`, `dead`, `redriven`; to a step of a routed one:
    `step_sent`, `step_ended`; to a node: `node_joined`, `node_left`, `node_changed`, `node_health`, `node_proof`; to a
    plan: `plan_registered`; to a listener that was too slow and missed some: `lagged`."""

    kind: str
    task_id: str  # empty: it is about no task, like the next
    action: str
    at: datetime
    outcome: str | None = None  # of a node: what it is now
    progress: float | None = None
    text: str | None = None
    node_id: str | None = None
    attempt: int | None = None
    step: str | None = None  # of a routed task
    plan: str | msgspec.UnsetType = msgspec.UNSET  # its name; left out, where it is about none
