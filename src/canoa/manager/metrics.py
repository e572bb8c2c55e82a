"""What a manager counts, and how Prometheus reads it. Nodes and circuits are read off the catalogue when asked for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from canoa.execution.health import health
from canoa.logs import get_logger
from canoa.manager.catalogue import by_proof
from canoa.worker.metrics import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from canoa.errors import CanoaError
    from canoa.manager.canaries import Canaries
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.links import Links
    from canoa.manager.registering import Registrations
    from canoa.manager.sending import Sender
    from canoa.store.port import Writes
    from canoa.transports.calling import Caller

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
        self.trouble: str | None = None  # of the store, while it does not write

    def refused(self, reason: str) -> None:
        self.requests_refused[reason] += 1

    def answered(self, verdict: str) -> None:
        self.step_results[verdict] += 1

    def not_written(self, error: CanoaError) -> None:
        """A move that must wait."""
        self.refused_by_store += 1
        self.in_trouble(error)

    def in_trouble(self, error: CanoaError) -> None:
        """Said once per trouble, not once per move."""
        if self.trouble is None:
            log.error("store_does_not_write", reason=str(error))
        self.trouble = f"the store does not write: {error}"

    def written(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            log.warning("store_writes_again")


class Figures(NamedTuple):
    """Whatever has figures."""

    stats: ManagerStats
    sender: Sender
    writes: Writes
    catalogue: Catalogue
    registrations: Registrations
    canaries: Canaries
    links: Links
    caller: Caller


class ManagerCollector(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        yield from self._of_tasks()
        yield from self._of_sending()
        yield from self._of_nodes()
        yield self._of_links()

    def _of_tasks(self) -> Iterator[Metric]:
        stats = self._figures.stats
        yield _by(
            "canoa_requests_refused", "Task requests that could not be accepted.", "reason", stats.requests_refused
        )
        yield _by("canoa_step_results", "What nodes answered, by what it changed.", "verdict", stats.step_results)
        yield _by("canoa_routed_tasks", "Routed tasks that ended here.", "outcome", stats.tasks)
        queued = HistogramMetricFamily("canoa_step_queue_seconds", "From a step's sending to its start at the node.")
        queued.add_metric([], stats.step_queue.buckets(), stats.step_queue.sum_s)
        yield queued

    def _of_sending(self) -> Iterator[Metric]:
        stats, sender, writes = self._figures.stats, self._figures.sender, self._figures.writes
        counted = [
            ("canoa_manager_sent", "Messages that the broker took.", stats.sent),
            ("canoa_manager_not_sent", "Messages that had to be sent again.", stats.not_sent),
            ("canoa_manager_store_refusals", "Moves that the store could not take at once.", stats.refused_by_store),
            ("canoa_store_transactions", "Transactions of this program.", writes.done),
            ("canoa_store_conflicts", "Transactions begun anew: another program had the same rows.", writes.repeated),
        ]
        for name, text, value in counted:
            yield CounterMetricFamily(name, text, value=value)
        yield GaugeMetricFamily("canoa_manager_in_hand", "Messages on their way to the broker.", value=sender.in_hand)

    def _of_nodes(self) -> Iterator[Metric]:
        catalogue, registrations = self._figures.catalogue, self._figures.registrations
        nodes = GaugeMetricFamily("canoa_nodes", "Nodes, by how they are.", labels=["layer", "state"])
        for (layer, state), count in catalogue.counted().items():
            nodes.add_metric([layer, state], count)
        yield nodes
        proofs = GaugeMetricFamily("canoa_node_proofs", "Nodes, by what proves them.", labels=["layer", "proof"])
        for (layer, proof), count in by_proof(catalogue.rows.values()).items():
            proofs.add_metric([layer, proof], count)
        yield proofs
        yield _by("canoa_canaries", "Messages that prove nodes.", "what", self._figures.canaries.counts)
        labels = ["node_id", "action", "state"]
        breakers = GaugeMetricFamily("canoa_breaker_state", "Circuits that are not closed.", labels=labels)
        now_ms = catalogue.now_ms()
        for row in catalogue.breakers.values():
            breakers.add_metric([row.node_id, row.action, health(row, now_ms, catalogue.settings.breaker)], 1)
        yield breakers
        yield CounterMetricFamily("canoa_registrations", "Registrations taken.", value=registrations.taken)
        refused = Counter({reason.value: count for reason, count in registrations.refused.items()})
        yield _by("canoa_registrations_refused", "Registrations that were not believed.", "reason", refused)
        text = "Endpoints of nodes that were not called, by registrations and calls."
        yield _by("canoa_endpoints_refused", text, "reason", self._figures.caller.refused)

    def _of_links(self) -> Metric:
        text = "Bodies of messages to nodes, and of their answers, as they travelled."
        family = CounterMetricFamily("canoa_link_bytes", text, labels=["layer", "way", "direction"])
        for labels, count in self._figures.links.totals().items():
            family.add_metric(list(labels), count)
        return family


def new_registry(collector: ManagerCollector) -> CollectorRegistry:
    """With the process's own figures beside ours."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


def _by(name: str, text: str, label: str, counted: Counter[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counted.items():
        family.add_metric([value], count)
    return family
