"""What is measured: every metric with its bound, and the sizes. No process is started here."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.rows import Metric, Unit

SQLITE = "sqlite"
POSTGRES = "postgres"
STORES = (SQLITE, POSTGRES)

GATHER, CALL, CHAIN, FANOUT = "gather", "call", "chain", "fanout"

CALLS = {"routed_p50": SQLITE, "routed_p50_postgres": POSTGRES}
"""By metric: our store. Everybody in turns."""

TALKS = {
    "routed_gather_sqlite": (GATHER, SQLITE),
    "routed_gather_postgres": (GATHER, POSTGRES),
    "chain_3": (CHAIN, SQLITE),
    "chain_3_postgres": (CHAIN, POSTGRES),
    "fanout_join": (FANOUT, SQLITE),
    "fanout_join_postgres": (FANOUT, POSTGRES),
}
"""By metric: the role that is played, and our store."""

DECISION = "routing_decision"
CROWD = "nodes_1000_cpu"
PROVEN = "proven_1000_cpu"
LIMITED = "two_managers_limited"
UNLIMITED = "two_managers"
CONFLICTS = "two_managers_conflicts"
SCALING = {LIMITED, UNLIMITED, CONFLICTS}
ON_BROKER = {*CALLS, *TALKS, CROWD, PROVEN, *SCALING}

METRICS = {
    **{name: Metric(Unit.MILLISECONDS) for name in CALLS},
    **{name: Metric(Unit.PER_SECOND) for name in TALKS},
    DECISION: Metric(Unit.MICROSECONDS, 50),
    CROWD: Metric(Unit.PERCENT, 10),
    PROVEN: Metric(Unit.PERCENT, 10),
    LIMITED: Metric(Unit.PER_SECOND),
    UNLIMITED: Metric(Unit.PER_SECOND),
    CONFLICTS: Metric(Unit.PERCENT, 1),
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    rounds: int = 5
    turns: int = 40  # of calls
    calls: int = 100  # in a turn
    counts: tuple[tuple[str, int], ...] = ((GATHER, 2_000), (CHAIN, 2_000), (FANOUT, 2_000))
    scaled: int = 4_000
    nodes: int = 1_000
    crowd_s: float = 60.0
    decisions: int = 20_000


FULL = Sizes()
QUICK = Sizes(
    rounds=1,
    turns=3,
    calls=20,
    counts=((GATHER, 200), (CHAIN, 50), (FANOUT, 20)),
    scaled=1_000,
    crowd_s=10.0,
    decisions=2_000,
)
"""For trying the harness, not for figures."""
