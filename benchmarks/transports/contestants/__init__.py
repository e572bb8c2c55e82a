"""Who is beside us: per protocol one program that asks and one that answers, with the library that Canoa uses and
nothing else. No manager, no store, no names, no retries. For AMQP that is an engine of our own: so pika is there, too.
"""

from __future__ import annotations

from benchmarks.transports import plan

BARE = {f"bare {way}": (way, f"{__name__}.bare_{way}") for way in plan.WAYS}
"""By name in the table: the way, and the module."""

BARE["bare pika"] = (plan.AMQP, f"{__name__}.bare_pika")

MEASURE = {plan.AMQP: "bare pika", plan.MQTT: "bare mqtt", plan.HTTP: "bare http"}
"""By way: the client that a program without Canoa would have, of whose rate ours has to reach a share."""
