"""Who is beside us: per protocol one program that asks and one that answers, with the library that Canoa uses and
nothing else. No manager, no store, no names, no retries."""

from __future__ import annotations

from benchmarks.transports import plan

BARE = {way: f"{__name__}.bare_{way}" for way in plan.WAYS}
