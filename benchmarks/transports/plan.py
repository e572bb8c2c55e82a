"""What is measured: every metric with its bound, and the sizes. No process is started here."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.rows import Metric, Unit

AMQP, MQTT, HTTP = "amqp", "mqtt", "http"
WAYS = (AMQP, MQTT, HTTP)

GATHER, CALL = "gather", "call"

RATES = {f"routed_gather_{way}": way for way in WAYS}
ROUND_TRIPS = {f"routed_p50_{way}": way for way in WAYS}
TALKS = {name: (GATHER, way) for name, way in RATES.items()} | {name: (CALL, way) for name, way in ROUND_TRIPS.items()}
"""By metric: the role that is played, and the way to the node."""

SHARE = 0.5
"""Of the bare rate, which ours has to reach: a routed action is two exchanges, and a task on disk between them."""

MOSQUITTO, RABBITMQ = "mosquitto", "rabbitmq"
CROWDS = {"mqtt_nodes_2000_cpu": MOSQUITTO, "mqtt_nodes_2000_cpu_rabbitmq": RABBITMQ}
"""By metric: the broker that the nodes are connected to."""

LEARNED = "learned_decision"

METRICS = {
    **{name: Metric(Unit.PER_SECOND) for name in RATES},
    **{name: Metric(Unit.MILLISECONDS) for name in ROUND_TRIPS},
    **{name: Metric(Unit.PERCENT, 25) for name in CROWDS},
    LEARNED: Metric(Unit.MICROSECONDS, 100),
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    rounds: int = 5
    counts: tuple[tuple[str, int], ...] = ((GATHER, 2_000), (CALL, 500))
    nodes: int = 2_000
    crowd_s: float = 60.0
    candidates: int = 1_000
    decisions: int = 20_000


FULL = Sizes()
QUICK = Sizes(rounds=1, counts=((GATHER, 200), (CALL, 50)), nodes=200, crowd_s=10.0, candidates=100, decisions=2_000)
"""For trying the harness, not for figures."""
