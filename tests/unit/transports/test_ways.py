"""Which way a node is reached by: the order of its layer, what failed, and when that is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.transports.ways import AGAIN_AFTER_S, AGAIN_AT_MOST_S, Closed, ordered
from canoa.vocabulary import AMQP, HTTP, MQTT, Layer, NodeId

GATEWAY = NodeId("gw-7")
WAYS = st.sampled_from([AMQP, MQTT, HTTP])


def first(closed: Closed, *ways: str, now_s: float = 0.0, down: frozenset[str] = frozenset()) -> str | None:
    return closed.first(GATEWAY, ways, now_s, is_up=lambda way: way not in down)


@pytest.mark.parametrize(
    ("layer", "order"),
    [
        (Layer.CLOUD, (AMQP, MQTT, HTTP)),
        (Layer.FOG, (AMQP, MQTT, HTTP)),
        (Layer.EDGE, (MQTT, HTTP, AMQP)),
    ],
)
def test_ways_are_ordered_by_layer_as_published(layer: Layer, order: tuple[str, ...]) -> None:
    assert ordered(layer, [HTTP, AMQP, MQTT, "PIGEON"]) == order


def test_a_way_that_failed_gives_way_to_the_next_and_is_tried_again_after_a_while() -> None:
    closed = Closed()

    closed.failed(GATEWAY, AMQP, 100.0)

    assert first(closed, AMQP, HTTP, now_s=100.0 + AGAIN_AFTER_S - 0.01) == HTTP
    assert first(closed, AMQP, HTTP, now_s=100.0 + AGAIN_AFTER_S) == AMQP


def test_a_way_that_fails_again_and_again_is_left_alone_for_longer_but_not_for_ever() -> None:
    closed, now_s = Closed(), 0.0
    waited = []
    for _ in range(20):
        closed.failed(GATEWAY, AMQP, now_s)
        before_s = now_s
        while first(closed, AMQP, HTTP, now_s=now_s) != AMQP:
            now_s += 0.5
        waited.append(now_s - before_s)

    assert waited[:4] == [2.0, 4.0, 8.0, 16.0]
    assert max(waited) == AGAIN_AT_MOST_S


def test_a_way_that_worked_is_open_at_once_and_its_failures_are_forgotten() -> None:
    closed = Closed()
    closed.failed(GATEWAY, AMQP, 0.0)

    closed.worked(GATEWAY, AMQP)

    assert first(closed, AMQP, HTTP) == AMQP
    assert not closed


def test_of_many_failures_at_once_one_counts() -> None:
    closed = Closed()

    for _ in range(50):
        closed.failed(GATEWAY, AMQP, 10.0)

    assert first(closed, AMQP, HTTP, now_s=10.0 + AGAIN_AFTER_S) == AMQP


def test_a_link_that_is_down_is_not_waited_for_where_another_way_is_up() -> None:
    assert first(Closed(), AMQP, HTTP, down=frozenset({AMQP})) == HTTP


def test_where_all_ways_failed_the_best_of_those_that_are_up_is_tried_all_the_same() -> None:
    closed = Closed()
    for way in (AMQP, HTTP):
        closed.failed(GATEWAY, way, 0.0)

    assert first(closed, AMQP, HTTP, now_s=0.1) == AMQP
    assert first(closed, AMQP, HTTP, now_s=0.1, down=frozenset({AMQP, HTTP})) == AMQP


@given(
    st.lists(WAYS, unique=True, min_size=1),
    st.lists(st.tuples(WAYS, st.booleans(), st.floats(0, 100)), max_size=30),
    st.frozensets(WAYS),
)
def test_there_is_always_a_way_and_it_is_one_of_the_nodes_own(
    ways: list[str], history: list[tuple[str, bool, float]], down: frozenset[str]
) -> None:
    closed, now_s = Closed(), 0.0
    for way, has_worked, later_s in history:
        now_s += later_s
        if has_worked:
            closed.worked(GATEWAY, way)
        else:
            closed.failed(GATEWAY, way, now_s)

    chosen = first(closed, *ways, now_s=now_s, down=down)

    assert chosen in ways
    assert chosen not in down or down.issuperset(ways)
    assert first(closed, *ways, now_s=now_s + AGAIN_AT_MOST_S) == ways[0], "work comes back to the preferred way"
