"""What a manager counts, and how Prometheus reads it. Nodes and circuits are read off the catalogue when asked for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from canoa.logs import get_logger
from canoa.worker.metrics import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from canoa.errors import CanoaError

log = get_logger(__name__)


class ManagerStats:
    def __init__(self) -> None:
        self.sent = 0
        self.not_sent = 0
        self.refused_by_store = 0
        self.requests_refused: Counter[str] = Counter()
        self.step_results: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()
        self.step_queue = Histogram()
        self._is_failing = False

    def refused(self, reason: str) -> None:
        self.requests_refused[reason] += 1

    def answered(self, verdict: str) -> None:
        self.step_results[verdict] += 1
        self._written()

    def not_written(self, error: CanoaError) -> None:
        """Said once per trouble, not once per move."""
        self.refused_by_store += 1
        if not self._is_failing:
            self._is_failing = True
            log.error("store_does_not_write", reason=str(error))

    def _written(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log.warning("store_writes_again")


class ManagerCollector(Collector):
    """`in_hand`: messages that the broker has not answered for."""

    def __init__(self, stats: ManagerStats, in_hand: Callable[[], int]) -> None:
        self._stats = stats
        self._in_hand = in_hand

    def collect(self) -> Iterator[Metric]:
        stats = self._stats
        yield _by(
            "canoa_requests_refused", "Task requests that could not be accepted.", "reason", stats.requests_refused
        )
        yield _by("canoa_step_results", "What nodes answered, by what it changed.", "verdict", stats.step_results)
        yield _by("canoa_routed_tasks", "Routed tasks that ended here.", "outcome", stats.tasks)
        yield CounterMetricFamily("canoa_manager_sent", "Messages that the broker took.", value=stats.sent)
        yield CounterMetricFamily(
            "canoa_manager_not_sent", "Messages that were sent again later.", value=stats.not_sent
        )
        yield CounterMetricFamily(
            "canoa_manager_store_refusals", "Moves that the store could not take at once.", value=stats.refused_by_store
        )
        yield GaugeMetricFamily("canoa_manager_in_hand", "Messages on their way to the broker.", value=self._in_hand())
        queued = HistogramMetricFamily("canoa_step_queue_seconds", "From a step's sending to its start at the node.")
        queued.add_metric([], stats.step_queue.buckets(), stats.step_queue.sum_s)
        yield queued


def _by(name: str, text: str, label: str, counted: Counter[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counted.items():
        family.add_metric([value], count)
    return family
