"""What a worker counts, cheaply, and how Prometheus reads it.

Counting is a few plain integers per run; names, labels and buckets are put together only when somebody asks.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from canoa.client.metrics import METRICS
from canoa.execution.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from canoa.vocabulary import ActionName, Layer
    from canoa.worker.outbox import OutboxStats

BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        bounds = [*map(str, BUCKETS_S), "+Inf"]
        return list(zip(bounds, accumulate(self.counts), strict=True))


class ActionStats:
    """One action in one worker."""

    __slots__ = ("duration", "in_progress", "outcomes", "queued", "retries")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(Outcome, 0)
        self.duration = Histogram()
        self.queued = Histogram()
        self.in_progress = 0
        self.retries = 0


class NodeFigures(Protocol):
    """What a worker that is a node counts besides."""

    @property
    def is_registered(self) -> bool: ...
    @property
    def refused(self) -> int: ...
    @property
    def is_deaf(self) -> bool: ...
    @property
    def absorbed(self) -> int: ...
    @property
    def outbox(self) -> OutboxStats | None: ...


class WorkerCollector(Collector):
    """`stats` may grow while the worker lives."""

    def __init__(self, stats: dict[ActionName, ActionStats], layer: Layer, *, node: NodeFigures | None = None) -> None:
        self._stats = stats
        self._node = node
        self._layer = layer.value

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        totals = CounterMetricFamily(
            "canoa_actions", "Deliveries of tasks, by how they went.", labels=["action", "layer", "outcome"]
        )
        retries = CounterMetricFamily("canoa_retries", "Attempts that failed and will be repeated.", labels=["action"])
        running = GaugeMetricFamily("canoa_actions_in_progress", "Attempts running now.", labels=["action"])
        duration = _histogram("canoa_action_duration_seconds", "How long attempts ran.")
        queued = _histogram("canoa_action_queue_seconds", "From submit (or the due time) to the start of the attempt.")
        for name, stats in self._stats.items():
            for outcome, count in stats.outcomes.items():
                totals.add_metric([name, self._layer, outcome.value], count)
            retries.add_metric([name], stats.retries)
            running.add_metric([name], stats.in_progress)
            duration.add_metric([name], stats.duration.buckets(), stats.duration.sum_s)
            queued.add_metric([name], stats.queued.buckets(), stats.queued.sum_s)
        yield from (totals, retries, running, duration, queued)
        if self._node is not None:
            yield from _of_this_node(self._node)
        yield from _of_this_process()


def _histogram(name: str, documentation: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(name, documentation, labels=["action"])


def _of_this_node(node: NodeFigures) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
    registered = GaugeMetricFamily("canoa_node_registered", "1 while a manager has acknowledged this node.")
    registered.add_metric([], node.is_registered)
    refused = CounterMetricFamily("canoa_node_messages_refused", "Messages to this node that fit none of its actions.")
    refused.add_metric([], node.refused)
    deaf = GaugeMetricFamily("canoa_node_deaf", "1 while what this node sends to its own queue does not come back.")
    deaf.add_metric([], node.is_deaf)
    absorbed = CounterMetricFamily("canoa_node_requests_absorbed", "Requests that came again, and did not run again.")
    absorbed.add_metric([], node.absorbed)
    return (registered, refused, deaf, absorbed, *(() if node.outbox is None else _of_the_outbox(node.outbox)))


def _of_the_outbox(stats: OutboxStats) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
    messages = GaugeMetricFamily("canoa_outbox_messages", "Answers that wait in the node's outbox.")
    messages.add_metric([], stats.messages)
    size = GaugeMetricFamily("canoa_outbox_bytes", "Their size.")
    size.add_metric([], stats.bytes)
    dropped = CounterMetricFamily(
        "canoa_outbox_dropped", "Answers that found no room, or no disk, since the file began."
    )
    dropped.add_metric([], stats.dropped)
    return (messages, size, dropped)


def _of_this_process() -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
    duplicates = CounterMetricFamily("canoa_duplicates", "Results that came after the first one for their task.")
    duplicates.add_metric([], METRICS.duplicates)
    refused = CounterMetricFamily("canoa_results_refused", "Bundles of results that could not be read.")
    refused.add_metric([], METRICS.refused)
    build = GaugeMetricFamily("canoa_build_info", "What runs here.", labels=["version", "python"])
    build.add_metric([version("canoa"), platform.python_version()], 1)
    return (duplicates, refused, build)


def new_registry(collector: WorkerCollector) -> CollectorRegistry:
    """With the process's own figures (memory, CPU, open files) beside ours."""
    from prometheus_client import ProcessCollector

    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)
