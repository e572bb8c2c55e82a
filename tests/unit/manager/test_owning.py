"""An id belongs to one node at a time: whoever else claims it is looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.manager.words import claimed

from canoa.manager.owning import Ages, is_doubtful, may_have, may_leave
from canoa.vocabulary import AMQP, HTTP
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from canoa.store.routed_port import NodeRow

LIVELY_S = 10.0
SILENCE_S = 150.0


def doubtful(
    known: NodeRow | None, claim: NodeRow, *, heard_s: float = LIVELY_S, registered_s: float = LIVELY_S
) -> bool:
    return is_doubtful(known, claim, ages=Ages(heard_s, registered_s), silence_s=SILENCE_S)


def test_nobody_doubts_a_new_id_or_the_same_instance_again() -> None:
    assert not doubtful(None, claimed())
    assert not doubtful(claimed(instance="i1"), claimed(instance="i1", endpoint="http://elsewhere"))


def test_a_worker_killed_and_started_again_gets_in_at_once() -> None:
    old, new = claimed(instance="i1"), claimed(instance="i2")

    assert doubtful(old, new)
    assert may_have(old, new, {AMQP: 1})


def test_a_second_live_worker_under_an_id_is_kept_out() -> None:
    assert not may_have(claimed(instance="i1"), claimed(instance="i2"), {AMQP: 2})


def test_a_successor_of_one_that_left_or_is_silent_gets_in() -> None:
    old, new = claimed(instance="i1"), claimed(instance="i2")

    assert not doubtful(claimed(instance="i1", actions=[]), new)
    assert not doubtful(old, new, heard_s=SILENCE_S + 1)


def test_a_foreign_node_that_starts_again_on_its_host_gets_in_at_once() -> None:
    assert not doubtful(claimed(endpoint="http://127.0.0.7:80"), claimed(endpoint="http://127.0.0.7:9000"))


def test_a_foreign_node_with_a_new_address_gets_in_before_it_would_be_silent() -> None:
    old, new = claimed(endpoint="http://127.0.0.7"), claimed(endpoint="http://127.0.0.8")

    assert doubtful(old, new, registered_s=99.0)
    assert not doubtful(old, new, registered_s=101.0)


@pytest.mark.parametrize("consumers", [None, 1, 2])
def test_a_second_foreign_endpoint_is_kept_out_while_the_first_lives(consumers: int | None) -> None:
    assert not may_have(claimed(endpoint="http://127.0.0.7"), claimed(endpoint="http://127.0.0.8"), {AMQP: consumers})


def test_a_foreign_node_gets_a_workers_id_only_when_nobody_listens_for_that() -> None:
    worker, foreign = claimed(instance="i1"), claimed()

    assert doubtful(worker, foreign)
    assert [may_have(worker, foreign, {AMQP: consumers}) for consumers in (2, 1, 0, None)] == [False, False, True, True]


def test_a_worker_does_not_take_the_id_of_a_foreign_node_that_lives() -> None:
    foreign, worker = claimed(), claimed(instance="i1")

    assert doubtful(foreign, worker)
    assert not any(may_have(foreign, worker, {AMQP: consumers}) for consumers in (2, 1, None))


def test_the_late_farewell_of_an_earlier_instance_is_not_the_present_ones() -> None:
    assert may_leave(claimed(instance="i1"), claimed(instance="i1", actions=[]))
    assert not may_leave(claimed(instance="i2"), claimed(instance="i1", actions=[]))
    assert not may_leave(claimed(endpoint="http://127.0.0.7"), claimed(endpoint="http://127.0.0.8", actions=[]))


@pytest.mark.parametrize("topic", [sapparchi.BY_MQTT, sapparchi.BY_MQTT_LINK])
@pytest.mark.parametrize("answers", [0, 1])
def test_of_a_device_at_a_topic_an_address_that_it_names_says_nothing(topic: str, answers: int) -> None:
    device = claimed(headers={topic: True})

    assert not may_have(device, claimed(instance="i1"), {HTTP: answers})
    assert not may_have(
        device, claimed(endpoint="http://127.0.0.8", headers={sapparchi.BY_HTTP: True}), {HTTP: answers}
    )


# --- Of several ways -------------------------------------------------------------------------------------


def worker(instance: str, ways: str, *, closed: str = "", port: int = 80) -> NodeRow:
    headers = {sapparchi.WAYS: ways} | ({sapparchi.CLOSED: closed} if closed else {})
    return claimed(instance=instance, headers=headers, endpoint=f"http://127.0.0.7:{port}")


def test_a_newcomer_without_a_queue_is_kept_out_by_anybody_who_listens_there() -> None:
    known = worker("i1", "AMQP,MQTT,HTTP")

    assert may_have(known, worker("i2", "AMQP,MQTT,HTTP", port=81), {AMQP: 1, HTTP: 1})
    assert not may_have(known, worker("i2", "MQTT,HTTP", port=81), {AMQP: 1, HTTP: 1})
    assert not may_have(known, worker("i2", "AMQP,HTTP", closed="AMQP", port=81), {AMQP: 1, HTTP: 1})
    assert may_have(known, worker("i2", "MQTT,HTTP", port=81), {AMQP: 0, HTTP: 0})


@pytest.mark.parametrize("seen", [{HTTP: 1}, {AMQP: None, HTTP: 1}])
def test_where_no_queue_can_be_seen_the_address_answers_for_the_first_one(seen: dict[str, int | None]) -> None:
    known = worker("i1", "AMQP,MQTT,HTTP", closed="AMQP")

    assert not may_have(known, worker("i2", "AMQP,HTTP", port=81), seen)
    assert may_have(known, worker("i2", "AMQP,HTTP"), seen)
    assert may_have(known, worker("i2", "AMQP,HTTP", port=81), {**seen, HTTP: 0})
