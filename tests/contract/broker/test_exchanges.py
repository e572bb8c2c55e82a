"""Where messages go: the exchange kinds, bindings, alternate exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import is_there, letter, received_bodies

from canoa.broker.port import Binding, Exchange, ExchangeKind, Queue, Relay
from canoa.errors import BrokerRefusedOperation, DeclarationDiffers, Unroutable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.broker.port import Broker, HeaderValue


async def is_routed(broker: Broker, exchange: str, key: str, headers: Mapping[str, HeaderValue] | None = None) -> bool:
    try:
        await broker.publish(letter(key, exchange=exchange, headers=headers or {}))
    except Unroutable:
        return False
    return True


async def test_default_exchange_routes_by_queue_name(broker: Broker) -> None:
    await broker.declare(Queue(name="a"), Queue(name="b"))

    await broker.publish(letter("b", b"for b"))

    assert await received_bodies(broker, "b", 1) == [b"for b"]
    assert (await broker.depth("a")).messages == 0


async def test_direct_exchange_routes_by_exact_key(broker: Broker) -> None:
    await broker.declare(
        Exchange(name="orders", kind=ExchangeKind.DIRECT),
        Queue(name="paid"),
        Binding(exchange="orders", queue="paid", key="order.paid"),
    )

    assert await is_routed(broker, "orders", "order.paid")
    assert not await is_routed(broker, "orders", "order")
    assert not await is_routed(broker, "orders", "order.paid.twice")
    assert (await broker.depth("paid")).messages == 1


async def test_fanout_exchange_copies_to_every_bound_queue_whatever_the_key(broker: Broker) -> None:
    await broker.declare(
        Exchange(name="news", kind=ExchangeKind.FANOUT),
        *(Queue(name=name) for name in ("a", "b", "aside")),
        *(Binding(exchange="news", queue=name, key="ignored") for name in ("a", "b")),
    )

    await broker.publish(letter("anything", b"extra", exchange="news"))

    assert await received_bodies(broker, "a", 1) == [b"extra"]
    assert await received_bodies(broker, "b", 1) == [b"extra"]
    assert (await broker.depth("aside")).messages == 0


@pytest.mark.parametrize(
    ("pattern", "reached", "missed"),
    [
        (
            "site.*.temperature",
            ["site.rio.temperature", "site..temperature"],
            ["site.temperature", "site.a.b.temperature"],
        ),
        ("site.#", ["site", "site.rio", "site.rio.door.open"], ["sites", "", "my.site"]),
        ("#.open", ["open", "door.open", "a.b.open"], ["open.door", ""]),
        ("#.door.#", ["door", "a.door", "door.b", "a.b.door.c.d"], ["doors", "a.b"]),
        ("*", ["one", "two"], ["", "one.two"]),
        ("#", ["", "one", "one.two"], []),
        ("", [""], ["one"]),
        ("*.*", ["a.b", "."], ["a", "a.b.c"]),
        ("a*", ["a*"], ["ab", "a"]),
    ],
)
async def test_topic_exchange_matches_words(
    broker: Broker, pattern: str, reached: list[str], missed: list[str]
) -> None:
    await broker.declare(Queue(name="q"), Binding(exchange="amq.topic", queue="q", key=pattern))

    routed = {key for key in (*reached, *missed) if await is_routed(broker, "amq.topic", key)}

    assert routed == set(reached)


@pytest.mark.parametrize(
    ("match_any", "reached", "missed"),
    [
        (False, [{"layer": "EDGE", "floor": 3}, {"layer": "EDGE", "floor": 3, "more": 1}], [{"layer": "EDGE"}, {}]),
        (True, [{"layer": "EDGE"}, {"floor": 3, "layer": "FOG"}], [{"layer": "FOG", "floor": 4}, {"more": 3}, {}]),
    ],
    ids=["all", "any"],
)
async def test_headers_exchange_matches_all_or_any_of_the_wanted(
    broker: Broker,
    match_any: bool,
    reached: list[dict[str, HeaderValue]],
    missed: list[dict[str, HeaderValue]],
) -> None:
    await broker.declare(
        Queue(name="q"),
        Binding(exchange="amq.headers", queue="q", headers={"layer": "EDGE", "floor": 3}, match_any=match_any),
    )

    routed = [headers for headers in (*reached, *missed) if await is_routed(broker, "amq.headers", "", headers)]

    assert routed == reached


@pytest.mark.parametrize(
    ("wanted", "sent", "is_match"),
    [
        (None, 5, True),
        (None, None, True),
        (1, True, False),
        (1, 1.0, True),
        ("x", b"x", True),
        ("true", True, False),
        ([1, "x"], [1, "x"], True),
        (["x"], [b"x"], False),
        ([1], [1.0], False),
        ({"k": "v"}, {"k": "v"}, True),
        ({"k": "v"}, {"k": "w"}, False),
        (2**40, 2**40, True),
    ],
)
async def test_header_values_are_compared_by_value_and_none_asks_for_presence(
    broker: Broker, wanted: HeaderValue, sent: HeaderValue, is_match: bool
) -> None:
    await broker.declare(Queue(name="q"), Binding(exchange="amq.headers", queue="q", headers={"h": wanted}))

    assert await is_routed(broker, "amq.headers", "", {"h": sent}) is is_match


async def test_header_names_that_start_with_x_are_not_matched(broker: Broker) -> None:
    await broker.declare(Queue(name="q"), Binding(exchange="amq.headers", queue="q", headers={"x-a": 1, "b": 2}))

    assert await is_routed(broker, "amq.headers", "", {"b": 2})


@pytest.mark.parametrize("kind", list(ExchangeKind))
async def test_each_kind_has_a_predefined_exchange(broker: Broker, kind: ExchangeKind) -> None:
    await broker.declare(
        Exchange(name=f"amq.{kind}", kind=kind), Queue(name="q"), Binding(exchange=f"amq.{kind}", queue="q", key="k")
    )

    assert await is_routed(broker, f"amq.{kind}", "k")


async def test_a_queue_bound_twice_gets_one_copy(broker: Broker) -> None:
    await broker.declare(
        Queue(name="q"),
        Binding(exchange="amq.topic", queue="q", key="a.#"),
        Binding(exchange="amq.topic", queue="q", key="#.b"),
    )

    await broker.publish(letter("a.b", exchange="amq.topic"))

    assert (await broker.depth("q")).messages == 1


async def test_a_binding_made_later_counts_from_then_on(broker: Broker) -> None:
    await broker.declare(Queue(name="q"))
    assert not await is_routed(broker, "amq.topic", "a.b")

    await broker.declare(Binding(exchange="amq.topic", queue="q", key="a.*"))

    assert await is_routed(broker, "amq.topic", "a.b")


async def test_bindings_go_with_their_queue(broker: Broker) -> None:
    await broker.declare(Queue(name="q"), Binding(exchange="amq.direct", queue="q", key="k"))
    await broker.delete_queue("q")

    await broker.declare(Queue(name="q"))

    assert await is_there(broker, "q")
    assert not await is_routed(broker, "amq.direct", "k")


async def test_alternate_exchange_gets_what_the_first_cannot_route(broker: Broker) -> None:
    await broker.declare(
        Exchange(name="rest", kind=ExchangeKind.FANOUT),
        Exchange(name="main", kind=ExchangeKind.DIRECT, alternate="rest"),
        Queue(name="known"),
        Queue(name="unknown"),
        Binding(exchange="main", queue="known", key="known"),
        Binding(exchange="rest", queue="unknown"),
    )

    await broker.publish(letter("known", b"1", exchange="main"))
    await broker.publish(letter("what?", b"2", exchange="main"))

    assert await received_bodies(broker, "known", 1) == [b"1"]
    assert await received_bodies(broker, "unknown", 1) == [b"2"]


async def test_what_no_alternate_can_route_either_is_unroutable(broker: Broker) -> None:
    await broker.declare(
        Exchange(name="a", kind=ExchangeKind.DIRECT, alternate="b"),
        Exchange(name="b", kind=ExchangeKind.DIRECT, alternate="a"),
        Exchange(name="c", kind=ExchangeKind.DIRECT, alternate="missing"),
    )

    assert not await is_routed(broker, "a", "k")
    assert not await is_routed(broker, "c", "k")


async def test_declaring_an_exchange_again_changes_nothing(broker: Broker) -> None:
    news = Exchange(name="news", kind=ExchangeKind.FANOUT)
    await broker.declare(news, Queue(name="q"), Binding(exchange="news", queue="q"))

    await broker.declare(news)

    assert await is_routed(broker, "news", "")


@pytest.mark.parametrize(
    "other",
    [Exchange(name="e", kind=ExchangeKind.TOPIC), Exchange(name="e", kind=ExchangeKind.DIRECT, alternate="amq.fanout")],
    ids=["kind", "alternate"],
)
async def test_an_exchange_with_other_traits_is_refused(broker: Broker, other: Exchange) -> None:
    await broker.declare(Exchange(name="e", kind=ExchangeKind.DIRECT))

    with pytest.raises(DeclarationDiffers):
        await broker.declare(other)


@pytest.mark.parametrize("name", ["", "amq.mine"])
async def test_reserved_exchange_names_are_refused(broker: Broker, name: str) -> None:
    with pytest.raises(BrokerRefusedOperation):
        await broker.declare(Exchange(name=name, kind=ExchangeKind.DIRECT))


@pytest.mark.parametrize(
    "binding",
    [
        Binding(exchange="missing", queue="q"),
        Binding(exchange="amq.topic", queue="missing"),
        Binding(exchange="", queue="q", key="k"),
    ],
    ids=["no exchange", "no queue", "default exchange"],
)
async def test_a_binding_to_what_cannot_be_bound_is_refused(broker: Broker, binding: Binding) -> None:
    await broker.declare(Queue(name="q"))

    with pytest.raises(BrokerRefusedOperation):
        await broker.declare(binding)


async def test_a_relay_carries_what_matches_on_to_another_exchange_and_each_queue_gets_it_once(broker: Broker) -> None:
    await broker.declare(
        *(Exchange(name=name, kind=ExchangeKind.TOPIC) for name in ("all", "ends")),
        *(Queue(name=name) for name in ("near", "far", "both")),
        Relay(exchange="all", to="ends", key="task.*.end"),
        Binding(exchange="all", queue="near", key="#"),
        Binding(exchange="ends", queue="far", key="#"),
        *(Binding(exchange=name, queue="both", key="#") for name in ("all", "ends")),
    )

    await broker.publish(letter("task.1.end", b"end", exchange="all"))
    await broker.publish(letter("task.1.begin", b"begin", exchange="all"))

    assert await received_bodies(broker, "near", 2) == [b"end", b"begin"]
    assert await received_bodies(broker, "both", 2) == [b"end", b"begin"]
    assert await received_bodies(broker, "far", 1) == [b"end"]
    assert (await broker.depth("far")).messages == 0


async def test_relays_may_form_a_circle(broker: Broker) -> None:
    await broker.declare(
        *(Exchange(name=name, kind=ExchangeKind.FANOUT) for name in ("one", "other")),
        Relay(exchange="one", to="other"),
        Relay(exchange="other", to="one"),
        Queue(name="q"),
        Binding(exchange="other", queue="q"),
    )

    await broker.publish(letter("", b"once", exchange="one"))

    assert await received_bodies(broker, "q", 1) == [b"once"]
    assert (await broker.depth("q")).messages == 0


async def test_a_relay_between_exchanges_that_do_not_exist_is_refused(broker: Broker) -> None:
    with pytest.raises(BrokerRefusedOperation):
        await broker.declare(Relay(exchange="amq.topic", to="nowhere"))
