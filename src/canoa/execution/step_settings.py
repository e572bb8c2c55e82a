"""What a manager decides about steps that neither their plan nor their node does."""

from __future__ import annotations

import msgspec

from canoa.execution.policy import Backoff


class StepSettings(msgspec.Struct, frozen=True, kw_only=True):
    queue_timeout_s: float = 3600.0  # how long a step waits for a node; longer rides out longer outages of a site
    travel_s: float = 10.0  # what an attempt gets on top of its time limit, for queueing and travel
    backoff: Backoff = Backoff()
    max_losses: int = 5  # nodes that may go away with one attempt before the step is held to be the reason
