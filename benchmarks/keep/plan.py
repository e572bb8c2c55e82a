"""What is measured: every metric with its bound, and the sizes. No process is started here."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.rows import Metric, Unit

SQLITE = "sqlite"
POSTGRES = "postgres"
STORES = (SQLITE, POSTGRES)

GATHER = {f"keep_gather_2000_{store}": store for store in STORES}
RECORDER = {f"recorder_{store}": store for store in STORES}
VISIBLE = "recorder_visible_p99_ms"
EMBEDDED = "up_embedded"
HTTP = "up_http"
LISTING = "list_1M"
ON_BROKER = {*GATHER, *RECORDER, VISIBLE}

METRICS = {
    **dict.fromkeys(GATHER, Metric(Unit.PER_SECOND)),
    "recorder_sqlite": Metric(Unit.PER_SECOND, 5_000),
    "recorder_postgres": Metric(Unit.PER_SECOND),
    VISIBLE: Metric(Unit.MILLISECONDS, 100),
    EMBEDDED: Metric(Unit.PER_SECOND, 5_000),
    HTTP: Metric(Unit.PER_SECOND, 500),
    LISTING: Metric(Unit.MILLISECONDS, 50),
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    rounds: int = 3
    gathered: int = 2_000
    recorded: int = 20_000
    pace_per_s: int = 1_000
    pace_s: int = 10
    embedded: int = 20_000
    http_calls: int = 5_000
    listed: int = 1_000_000


FULL = Sizes()
QUICK = Sizes(rounds=1, gathered=200, recorded=5_000, pace_s=2, embedded=2_000, http_calls=500, listed=100_000)
"""For trying the harness, not for figures."""
