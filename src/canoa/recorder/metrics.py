"""What a recorder counts, and how Prometheus reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from canoa.errors import CanoaError

log = get_logger(__name__)


class RecorderStats:
    def __init__(self) -> None:
        self.accepted = 0
        self.recorded = 0
        self.duplicates = 0
        self.buried = 0
        self.refused_by_store = 0
        self._is_failing = False

    def not_written(self, error: CanoaError) -> None:
        """Said once per trouble, not once per task."""
        self.refused_by_store += 1
        if not self._is_failing:
            self._is_failing = True
            log.error("store_does_not_write", reason=str(error))

    def written(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log.warning("store_writes_again")


class RecorderCollector(Collector):
    def __init__(self, stats: RecorderStats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats
        counted = [
            ("canoa_tasks_accepted", "Tasks taken into the store.", stats.accepted),
            ("canoa_results_recorded", "Results written down, one per task.", stats.recorded),
            ("canoa_results_duplicate", "Results of tasks that had ended already.", stats.duplicates),
            ("canoa_dead_letters_buried", "Dead letters taken from the broker.", stats.buried),
            ("canoa_store_refusals", "Changes that the store could not take at once.", stats.refused_by_store),
        ]
        for name, text, value in counted:
            yield CounterMetricFamily(name, text, value=value)
