"""What a node says by several ways is one thing: put together as long as it is the same process, and closed one by
one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.manager.words import claimed

from canoa.execution.proof import Proof
from canoa.manager import sides
from canoa.manager.sides import closes, without
from canoa.vocabulary import AMQP, HTTP, MQTT, MQTT_LINK, MQTT_UNHEARD
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from canoa.store.routed_port import NodeRow

BY: dict[str, dict[str, Any]] = {
    AMQP: {},
    MQTT: {sapparchi.BY_MQTT: 1},
    MQTT_LINK: {sapparchi.BY_MQTT_LINK: True},
    HTTP: {sapparchi.BY_HTTP: True},
}
TOPICS = pytest.mark.parametrize("topic", [MQTT, MQTT_LINK])


def said(by: str, *, instance: str = "i1", closed: str = "", link: int = 0, **words: Any) -> NodeRow:
    """By a worker with three ways."""
    headers: dict[str, Any] = {sapparchi.WAYS: "AMQP,MQTT,HTTP"} | ({sapparchi.CLOSED: closed} if closed else {})
    headers |= {sapparchi.LINK: link} if link else {}
    return claimed(instance=instance, headers=headers | BY[by], **words)


def bare(by: str, **words: Any) -> NodeRow:
    """By the same one, over MQTT 3.1.1: without any header."""
    return claimed(headers=BY[by], **words)


def joined(known: NodeRow | None, claim: NodeRow, *, by: str = AMQP) -> NodeRow:
    return sides.joined(known, claim, by=[by] if claim.instance else [])


def is_one_process(known: NodeRow, claim: NodeRow, *, by: str = AMQP) -> bool:
    return sides.is_one_process(known, claim, by=[by] if claim.instance else [])


def heard(*rows: NodeRow) -> NodeRow:
    """What is known after all of them, as a manager has it."""
    known = rows[0]
    for row in rows[1:]:
        known = joined(known, row)
    given = {"token": "t", "registered_ms": 1, "seen_ms": 2, "version": 3, "proof": Proof.ONLINE}
    return msgspec.structs.replace(known, **given)


# --- Put together ----------------------------------------------------------------------------------------


@TOPICS
def test_where_the_topic_is_nobody_knows_until_it_is_heard_there_and_then_every_way_s_word_says_the_same(
    topic: str,
) -> None:
    assert said(AMQP).all_ways == (AMQP, MQTT_UNHEARD, HTTP)

    known = heard(said(AMQP), said(topic))

    assert known.all_ways == (AMQP, topic, HTTP)
    assert {joined(known, said(by)).fingerprint for by in (AMQP, topic, HTTP)} == {known.fingerprint}


@given(st.permutations([AMQP, MQTT_LINK, HTTP, AMQP, HTTP]))
def test_in_whatever_order_a_node_speaks_by_its_ways_the_same_is_known_of_it(order: list[str]) -> None:
    assert heard(*map(said, order)).fingerprint == heard(said(MQTT_LINK)).fingerprint


def test_another_process_under_the_id_inherits_nothing() -> None:
    known = heard(said(AMQP), said(MQTT_LINK))

    assert joined(known, said(AMQP, instance="i2")).all_ways == (AMQP, MQTT_UNHEARD, HTTP)


def test_what_a_node_says_to_be_closed_is_so_and_the_preferred_way_is_one_that_is_open() -> None:
    known = heard(said(AMQP), said(MQTT_LINK))

    cut_off = joined(known, said(HTTP, closed="AMQP,MQTT"))

    assert (known.protocol, known.open_ways) == (AMQP, (AMQP, MQTT_LINK, HTTP))
    assert (cut_off.closed, cut_off.protocol, cut_off.open_ways) == ((AMQP, MQTT_LINK), HTTP, (HTTP,))
    assert cut_off.all_ways == known.all_ways
    assert cut_off.fingerprint != known.fingerprint


def test_a_node_of_one_way_or_of_another_make_is_as_it_was() -> None:
    alone = claimed(instance="i1")

    assert joined(alone, alone) == alone
    assert joined(None, alone) == alone
    assert joined(claimed(), alone) == alone
    assert joined(alone, claimed()) == claimed()


def test_the_last_of_its_mqtt_links_counts_whatever_comes_later_by_a_slower_way() -> None:
    known = heard(said(MQTT_LINK, link=2))

    assert known.link == 2
    assert joined(known, said(AMQP, link=1)).fingerprint == known.fingerprint
    assert joined(known, said(AMQP, link=3)).link == 3
    assert joined(known, said(AMQP, instance="i2", link=1)).link == 1


# --- Over MQTT 3.1.1 -----------------------------------------------------------------------------------------


@TOPICS
def test_a_bare_registration_of_the_very_same_says_where_the_topic_is_and_nothing_else(topic: str) -> None:
    known = heard(said(AMQP))

    side = joined(known, bare(topic))

    assert is_one_process(known, bare(topic))
    assert (side.instance, side.all_ways) == ("i1", (AMQP, topic, HTTP))
    assert joined(side, bare(topic)).fingerprint == joined(side, said(AMQP)).fingerprint == side.fingerprint


@TOPICS
def test_it_may_be_the_first_to_be_heard(topic: str) -> None:
    first = bare(topic)

    assert is_one_process(first, said(AMQP))
    assert joined(first, said(AMQP)).all_ways == (AMQP, topic, HTTP)


@TOPICS
def test_over_http_nobody_is_the_other_side_of_a_device_by_repeating_its_words(topic: str) -> None:
    device = bare(topic)

    assert not is_one_process(device, said(HTTP), by=HTTP)
    assert joined(device, said(HTTP), by=HTTP) == said(HTTP)


@TOPICS
def test_at_its_own_topic_it_is(topic: str) -> None:
    assert is_one_process(bare(topic), said(topic), by=topic)


def test_a_bare_registration_opens_its_topic_and_no_other_way() -> None:
    known = without(heard(said(AMQP), bare(MQTT)), (AMQP, MQTT))

    assert joined(known, bare(MQTT)).closed == (AMQP,)


@pytest.mark.parametrize(
    "other",
    [
        bare(MQTT, type="ESP32"),
        bare(MQTT, endpoint="http://127.0.0.8"),
        bare(MQTT, layer="EDGE"),
        bare(MQTT, actions=["urn:sapparchi:Action:shop.price"]),
        bare(AMQP),
    ],
)
def test_whoever_differs_in_anything_is_another_node(other: NodeRow) -> None:
    known = heard(said(AMQP))

    assert not is_one_process(known, other)
    assert joined(known, other) == other


def test_a_node_that_has_no_topic_has_no_side_there() -> None:
    alone = claimed(instance="i1")

    assert not is_one_process(alone, bare(MQTT))


# --- Closed ----------------------------------------------------------------------------------------------


def test_a_last_will_closes_the_topic_alone() -> None:
    known = heard(said(AMQP), said(MQTT_LINK))
    will = said(MQTT_LINK, closed="MQTT", actions=[])

    closed = without(known, closes(known, will))

    assert closes(known, will) == (MQTT_LINK,)
    assert (closed.closed, closed.actions, closed.token, closed.proof) == (
        (MQTT_LINK,),
        known.actions,
        "t",
        Proof.ONLINE,
    )


def test_what_the_node_says_afterwards_by_another_way_is_known_then() -> None:
    known = heard(said(AMQP), said(MQTT_LINK))

    closed = without(known, (MQTT_LINK,))

    assert joined(closed, said(AMQP, closed="MQTT")).fingerprint == closed.fingerprint
    assert joined(closed, said(MQTT_LINK)).fingerprint == known.fingerprint


def test_a_farewell_that_names_no_way_is_the_whole_node_s() -> None:
    known = heard(said(AMQP), said(MQTT_LINK))

    assert [closes(known, said(by, actions=[])) for by in (AMQP, MQTT_LINK, HTTP)] == [(), (), ()]


@TOPICS
def test_a_bare_farewell_closes_the_topic_of_a_node_with_other_ways(topic: str) -> None:
    known = heard(said(AMQP), bare(topic))

    assert closes(known, bare(topic, actions=[])) == (topic,)
    assert closes(known, bare(topic, actions=[], type="ESP32")) == ()
    assert closes(bare(topic), bare(topic, actions=[])) == ()


def test_the_last_will_of_an_earlier_process_closes_nothing_of_its_successor() -> None:
    known = heard(said(AMQP, instance="i2"), said(MQTT_LINK, instance="i2"))

    assert closes(known, said(MQTT_LINK, closed="MQTT", actions=[])) == ()
