"""Which messages to nodes are compressed, by which way, and what is counted of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from canoa.broker.port import Message
from canoa.errors import Unroutable
from canoa.store.routed_port import NodeRow
from canoa.transports.compressing import Compressing
from canoa.transports.reaching import Reaching
from canoa.vocabulary import AMQP, HTTP, MQTT, MQTT_LINK, Layer, NodeId
from canoa.wire import packing
from canoa.wire.compression_policy import CompressionPolicy, parse_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.port import PublishOutcome
    from canoa.transports.port import OnSent

RULES = {Layer.EDGE: parse_rule("", "gzip:300"), Layer.CLOUD: parse_rule("", "none")}
COMPRESSING = Compressing(CompressionPolicy(RULES))
OURS = NodeRow(node_id=NodeId("gw-7"), layer=Layer.EDGE, encodings=("gzip", "lz4"))
FOREIGN = replace(OURS, encodings=())
LARGE = Message(body=b"the same again and again. " * 100, message_id="large")
SMALL = Message(body=b"x" * 299, message_id="small")


def encodings(node: NodeRow, way: str, *messages: Message) -> list[str | None]:
    return [each.content_encoding for each in COMPRESSING.packed(node, way, messages)]


@pytest.mark.parametrize("way", [AMQP, HTTP, MQTT_LINK])
def test_a_large_body_for_a_node_that_reads_it_is_compressed_by_its_layers_rule(way: str) -> None:
    [sent] = COMPRESSING.packed(OURS, way, [LARGE])

    assert sent.content_encoding == "gzip"
    assert len(sent.body) < len(LARGE.body) / 10
    assert packing.unpack(sent, 10_000) == LARGE.body
    assert sent.message_id == "large"


def test_a_node_of_another_make_gets_every_body_as_published() -> None:
    assert COMPRESSING.packed(FOREIGN, AMQP, [LARGE])[0] is LARGE


def test_a_node_that_reads_other_encodings_gets_it_plain() -> None:
    assert encodings(replace(OURS, encodings=("zstd",)), AMQP, LARGE) == [None]


def test_over_mqtt_without_headers_nothing_is_compressed() -> None:
    assert encodings(OURS, MQTT, LARGE) == [None]


@pytest.mark.parametrize("layer", [Layer.CLOUD, Layer.FOG])
def test_where_the_rule_is_none_or_there_is_none_nothing_is(layer: Layer) -> None:
    assert encodings(replace(OURS, layer=layer), AMQP, LARGE) == [None]


def test_small_bodies_stay_as_they_are_and_cost_no_copy() -> None:
    messages = [SMALL, SMALL]

    assert COMPRESSING.packed(OURS, AMQP, messages) is messages
    assert encodings(OURS, AMQP, SMALL, LARGE) == [None, "gzip"]


def test_what_is_compressed_already_stays_so() -> None:
    assert encodings(OURS, AMQP, replace(LARGE, content_encoding="zstd")) == ["zstd"]


# --- On its way -------------------------------------------------------------------------------------------------


class Way:
    """Takes everything, or nothing."""

    def __init__(self, outcome: PublishOutcome = None) -> None:
        self.outcome = outcome
        self.taken: list[Message] = []

    is_up = True

    def may_reach(self, node: NodeRow) -> bool:
        return True

    def post(self, node: NodeRow, messages: Sequence[Message], on_sent: OnSent) -> None:
        self.taken += messages
        asyncio.get_running_loop().call_soon(on_sent, range(len(messages)), self.outcome)

    async def listeners(self, node: NodeRow) -> int | None:
        return None


class Book:
    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def sent(self, node: NodeRow, way: str, size_bytes: int, *, held_bytes: int) -> None:
        self.told.append((way, size_bytes, held_bytes))


async def sent(node: NodeRow, book: Book, **ways: Way) -> PublishOutcome:
    reaching = Reaching(
        {way.replace("_", "-"): transport for way, transport in ways.items()},
        row=lambda _: node,
        compressing=COMPRESSING,
        meter=book,
    )
    told: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()
    reaching.post(node.node_id, [LARGE, SMALL], lambda _, outcome: told.set_result(outcome))
    return await told


async def test_what_is_counted_is_what_travelled() -> None:
    way, book = Way(), Book()

    await sent(OURS, book, AMQP=way)

    size_bytes = sum(len(each.body) for each in way.taken)
    assert book.told == [(AMQP, size_bytes, len(LARGE.body) + len(SMALL.body))]
    assert size_bytes < 600


async def test_by_another_way_it_goes_as_that_one_needs_it_and_counts_once() -> None:
    first, second, book = Way(Unroutable("nobody")), Way(), Book()
    plain_bytes = len(LARGE.body) + len(SMALL.body)

    outcome = await sent(replace(OURS, ways=(MQTT_LINK, MQTT)), book, MQTT_LINK=first, MQTT=second)

    assert outcome is None
    assert [each.content_encoding for each in first.taken] == ["gzip", None]
    assert second.taken == [LARGE, SMALL]
    assert book.told == [(MQTT_LINK, 0, plain_bytes), (MQTT, plain_bytes, 0)]
