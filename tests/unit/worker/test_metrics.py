"""What is counted is what Prometheus reads: names, labels, cumulative buckets."""

from __future__ import annotations

import platform
from importlib.metadata import version

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from canoa.client.metrics import METRICS
from canoa.execution.outcome import Outcome
from canoa.vocabulary import ActionName, Layer
from canoa.worker.metrics import BUCKETS_S, ActionStats, Histogram, WorkerCollector, exposition, new_registry

RESIZE = ActionName("shop.resize")


def read(
    stats: dict[ActionName, ActionStats], layer: Layer = Layer.FOG
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = exposition(new_registry(WorkerCollector(stats, layer))).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_every_outcome_of_every_action_is_there_from_the_start() -> None:
    samples = read({RESIZE: ActionStats()})

    for outcome in Outcome:
        assert samples[key("canoa_actions_total", action=RESIZE, layer="FOG", outcome=outcome.value)] == 0


def test_counts_are_told_under_their_names() -> None:
    stats = ActionStats()
    stats.outcomes[Outcome.OK] = 5
    stats.retries = 2
    stats.in_progress = 3
    stats.duration.observe(0.003)
    stats.queued.observe(400.0)

    samples = read({RESIZE: stats})

    assert samples[key("canoa_actions_total", action=RESIZE, layer="FOG", outcome="ok")] == 5
    assert samples[key("canoa_retries_total", action=RESIZE)] == 2
    assert samples[key("canoa_actions_in_progress", action=RESIZE)] == 3
    assert samples[key("canoa_action_duration_seconds_count", action=RESIZE)] == 1
    assert samples[key("canoa_action_duration_seconds_sum", action=RESIZE)] == pytest.approx(0.003)
    assert samples[key("canoa_action_duration_seconds_bucket", action=RESIZE, le="0.0025")] == 0
    assert samples[key("canoa_action_duration_seconds_bucket", action=RESIZE, le="0.005")] == 1
    assert samples[key("canoa_action_queue_seconds_bucket", action=RESIZE, le="300.0")] == 0
    assert samples[key("canoa_action_queue_seconds_bucket", action=RESIZE, le="+Inf")] == 1


def test_the_process_tells_what_it_is_and_how_many_duplicates_it_saw() -> None:
    samples = read({})

    assert samples[key("canoa_build_info", version=version("canoa"), python=platform.python_version())] == 1
    assert samples[key("canoa_duplicates_total")] == METRICS.duplicates
    assert samples[key("canoa_results_refused_total")] == METRICS.refused
    assert samples[key("process_resident_memory_bytes")] > 0


def test_an_action_offered_later_appears() -> None:
    stats = {RESIZE: ActionStats()}
    registry = new_registry(WorkerCollector(stats, Layer.EDGE))

    stats[ActionName("shop.other")] = ActionStats()

    assert b'canoa_retries_total{action="shop.other"} 0.0' in exposition(registry)


@given(st.lists(st.floats(0, 1000)))
def test_buckets_are_cumulative_and_complete(seconds: list[float]) -> None:
    histogram = Histogram()

    for each in seconds:
        histogram.observe(each)

    buckets = dict(histogram.buckets())
    assert buckets["+Inf"] == len(seconds)
    for bound in BUCKETS_S:
        assert buckets[str(bound)] == sum(each <= bound for each in seconds)
    assert histogram.sum_s == pytest.approx(sum(seconds))
