"""What is measured: every metric with its bound, and the sizes. No process is started here."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.rows import Metric, Unit

SQLITE = "sqlite"
POSTGRES = "postgres"
STORES = (SQLITE, POSTGRES)

ROLES = GATHER, CALL, CHAIN, FANOUT = "gather", "call", "chain", "fanout"

TALKS = {
    "routed_p50": (CALL, SQLITE),
    "routed_p50_postgres": (CALL, POSTGRES),
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
ON_BROKER = {*TALKS, CROWD, PROVEN, *SCALING}

METRICS = {
    **{name: Metric(Unit.MILLISECONDS if role == CALL else Unit.PER_SECOND) for name, (role, _) in TALKS.items()},
    DECISION: Metric(Unit.MICROSECONDS, 50),
    CROWD: Metric(Unit.PERCENT, 10),
    PROVEN: Metric(Unit.PERCENT, 10),
    LIMITED: Metric(Unit.PER_SECOND),
    UNLIMITED: Metric(Unit.PER_SECOND),
    CONFLICTS: Metric(Unit.PERCENT, 1),
}


@dataclass(frozen=True)
class Turns:
    """So many, each of so much."""

    turns: int
    count: int


@dataclass(frozen=True, kw_only=True)
class Sizes:
    gather: Turns = Turns(5, 2_000)
    call: Turns = Turns(40, 100)
    chain: Turns = Turns(5, 2_000)
    fanout: Turns = Turns(5, 2_000)
    scaled: Turns = Turns(5, 12_000)  # with few, its end counts, when one of two managers has nothing left to do
    nodes: int = 1_000
    crowd_s: float = 60.0
    decisions: int = 20_000

    def of(self, role: str) -> Turns:
        return {GATHER: self.gather, CALL: self.call, CHAIN: self.chain, FANOUT: self.fanout}[role]


FULL = Sizes()
QUICK = Sizes(
    gather=Turns(2, 200),
    call=Turns(3, 20),
    chain=Turns(2, 50),
    fanout=Turns(2, 20),
    scaled=Turns(2, 1_000),
    crowd_s=10.0,
    decisions=2_000,
)
"""For trying the harness, not for figures."""
