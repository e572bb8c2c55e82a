"""What is measured: every session, its sizes, and the metrics it yields. No process is started here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from benchmarks.rows import Metric, Unit


@dataclass(frozen=True, kw_only=True)
class Drain:
    """A queue is filled while nobody works, half of it with confirms and on the clock if `submit_metric` is wanted;
    then `workers` processes empty it."""

    metric: str
    submit_metric: str | None = None
    workers: int = 1
    count: int
    payload_bytes: int = 100

    @property
    def metrics(self) -> dict[str, Metric]:
        names = [self.metric] if self.submit_metric is None else [self.submit_metric, self.metric]
        return dict.fromkeys(names, Metric(Unit.PER_SECOND))


@dataclass(frozen=True, kw_only=True)
class Talk:
    """One worker process, one caller: many results gathered, then one call after another."""

    gather_metric: str
    call_metric: str | None = None
    gathered: int
    calls: int = 0
    payload_bytes: int = 100

    @property
    def metrics(self) -> dict[str, Metric]:
        names = {self.gather_metric: Metric(Unit.PER_SECOND)}
        return names if self.call_metric is None else names | {self.call_metric: Metric(Unit.MILLISECONDS)}


Session: TypeAlias = Drain | Talk

KIB = 1024

SESSIONS: tuple[Session, ...] = (
    Drain(metric="drain_1", submit_metric="submit_confirmed", count=20_000),
    Drain(metric="drain_2", workers=2, count=20_000),
    Talk(gather_metric="gather_2000", gathered=2_000, call_metric="call_p50", calls=500),
    Drain(metric="drain_1_1KiB", submit_metric="submit_confirmed_1KiB", count=10_000, payload_bytes=KIB),
    Talk(gather_metric="gather_2000_1KiB", gathered=2_000, payload_bytes=KIB),
    Drain(metric="drain_1_100KiB", submit_metric="submit_confirmed_100KiB", count=2_000, payload_bytes=100 * KIB),
    Talk(gather_metric="gather_200_100KiB", gathered=200, payload_bytes=100 * KIB),
)

FOOTPRINT: dict[str, Metric] = {
    "import_time": Metric(Unit.MILLISECONDS, 150),
    "idle_rss": Metric(Unit.MEBIBYTES, 60),
    "idle_cpu": Metric(Unit.PERCENT, 1),
    "memory_1M": Metric(Unit.MEBIBYTES, 10),
}
"""What only our own worker is asked for, and the bound it has to keep."""

METRICS = {name: metric for session in SESSIONS for name, metric in session.metrics.items()} | FOOTPRINT

QUICK = 10
"""`--quick` divides message counts by this: for trying the harness, not for figures."""


def sessions(only: set[str], *, is_quick: bool) -> list[Session]:
    """Those that yield a metric of `only`."""
    chosen = [session for session in SESSIONS if session.metrics.keys() & only]
    return [_shortened(session) for session in chosen] if is_quick else chosen


def _shortened(session: Session) -> Session:
    match session:
        case Drain(workers=1):
            return replace(session, count=max(session.count // QUICK, 1_000))
        case Drain():
            return session  # the last worker to start would find nothing left
        case Talk():
            return replace(session, gathered=max(session.gathered // QUICK, 50), calls=session.calls // QUICK)
