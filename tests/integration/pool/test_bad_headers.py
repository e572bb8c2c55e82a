"""Headers that lie, and properties that are no text, cost their message alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.broker.inbox import letter, until_holding
from tests.integration.pool.pool import Gate, dead_letter, dead_letters, opened, send, taken, until

from canoa import Canoa
from canoa.broker import topology
from canoa.broker.port import Binding, Exchange, ExchangeKind
from canoa.wire import task

if TYPE_CHECKING:
    from canoa.broker.port import Broker

QUEUE = topology.action_queue_name("shop.note")
BODY = b'{"number": 1}'

HOSTILE: dict[str, dict[str, Any]] = {
    "attempt is text": {task.ATTEMPT: "x"},
    "attempt is negative": {task.ATTEMPT: -1},
    "attempt is zero": {task.ATTEMPT: 0},
    "attempt is the largest": {task.ATTEMPT: 2**63 - 1},
    "attempt is a claim": {task.ATTEMPT: True},
    "crashes are a table": {task.CRASHES: {"a": 1}},
    "crashes are a list": {task.CRASHES: [1, 2]},
    "crashes are bytes": {task.CRASHES: b"\xff\xfe"},
    "crashes are the largest": {task.CRASHES: 2**63 - 1},
    "retries are a fraction": {task.RETRIES: 1.5},
    "retries are negative": {task.RETRIES: -(2**63)},
    "timeout is zero": {task.TIMEOUT: 0},
    "timeout is nothing": {task.TIMEOUT: None},
    "deadline is text": {task.DEADLINE: "tomorrow"},
    "sent is the largest": {task.SENT: 2**63 - 1},
    "key is a table": {task.IDEMPOTENCY_KEY: {"a": 1}},
    "key is bytes": {task.IDEMPOTENCY_KEY: b"\xff"},
}

HARMLESS: dict[str, dict[str, Any]] = {
    "a trace that is none": {"traceparent": "nonsense", "tracestate": 7},
    "a trace of bytes": {"traceparent": b"\xff", "tracestate": {"a": 1}},
    "headers of others": {"x-anything": [1, {"deep": [None, 1.5, "a"]}], "": "no name", "ação": "não"},
    "the broker's own, forged": {"x-death": "nonsense", "x-first-death-queue": 7},
    "many": {f"header-{number}": number for number in range(500)},
}


def noting(app: Canoa) -> list[int]:
    """Gives the app an action that notes what it got."""
    ran: list[int] = []

    @app.action(retry=2)
    async def note(number: int) -> None:
        ran.append(number)

    return ran


async def test_every_hostile_header_makes_a_dead_letter_that_names_it(app: Canoa, raw: Broker) -> None:
    ran = noting(app)

    async with app.worker():
        for name, headers in HOSTILE.items():
            await send(raw, "shop.note", BODY, message_id=name, headers=headers)
        letters = await dead_letters(raw, len(HOSTILE))
        await app.find("note").call(2)

    assert ran == [2]
    assert {each.message_id for each in letters} == set(HOSTILE)
    for each in letters:
        (header,) = HOSTILE[str(each.message_id)]
        assert each.headers["canoa-reason"] == "refused"
        assert str(each.headers["canoa-error"]).startswith(f"header {header} is ")
        assert each.headers[header] == HOSTILE[str(each.message_id)][header]


async def test_headers_that_are_not_ours_stop_nothing(app: Canoa, raw: Broker) -> None:
    ran = noting(app)

    async with app.worker():
        for name, headers in HARMLESS.items():
            await send(raw, "shop.note", BODY, message_id=name, headers=headers)
        await until(lambda: len(ran) == len(HARMLESS))


async def test_a_header_of_another_program_survives_its_death(app: Canoa, raw: Broker) -> None:
    noting(app)

    async with app.worker():
        await send(raw, "shop.note", b"{", headers={"mine": {"a": [1, b"\xff"]}})
        buried = await dead_letter(raw)

    assert buried.headers["mine"] == {"a": [1, b"\xff"]}


class Bytes(str):
    """A text that is sent as bytes which are none."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe\xfa"


@pytest.mark.parametrize(
    "field", ["reply_to", "message_id", "correlation_id", "type", "app_id", "content_type", "content_encoding"]
)
async def test_properties_that_are_no_text_cost_their_message_alone(rabbit_url: str, field: str) -> None:
    app = Canoa("shop", broker=rabbit_url)
    ran = noting(app)
    async with app, app.worker(), opened(app) as raw:
        bad = letter(QUEUE, BODY, **{"message_id": "hostile", field: Bytes("?")}, mandatory=False)
        await raw.publish(bad)
        await app.find("note").call(2)
        await until_holding(raw, QUEUE, 0)

        if field in ("content_type", "content_encoding"):
            assert "is unknown" in str((await dead_letter(raw)).headers["canoa-error"])
            assert ran == [2]
        else:
            await until(lambda: sorted(ran) == [1, 2])


async def test_headers_too_large_to_be_buried_with_their_reason_are_buried_all_the_same(rabbit_url: str) -> None:
    app = Canoa("shop", broker=rabbit_url)
    noting(app)
    async with app, app.worker(), opened(app) as raw:
        heavy = {"heavy": "x" * 130_950}  # just below the broker's frame of 128 KiB
        await raw.publish(letter(QUEUE, b"{", message_id="heavy", headers=heavy))
        buried = await dead_letter(raw)
        await app.find("note").call(2)

    assert (buried.message_id, buried.body, buried.headers["canoa-reason"]) == ("heavy", b"{", "refused")
    assert "they must fit into one frame" in str(buried.headers["canoa-error"])
    assert "heavy" not in buried.headers


async def test_a_task_from_an_exchange_of_another_program_goes_back_to_its_own_queue(app: Canoa, raw: Broker) -> None:
    gate = Gate()

    @app.action
    async def note() -> None:
        await gate.hold()

    async with app.worker():
        pass
    orders = Exchange(name="orders", kind=ExchangeKind.TOPIC)
    await raw.declare(orders, Binding(exchange="orders", queue=QUEUE, key="#"))
    for _ in range(4):
        await raw.publish(letter("orders.new", b"{}", exchange="orders"))

    async with app.worker(concurrency=1, drain_s=5):
        await gate.has(1)
        await until_holding(raw, QUEUE, 2)  # one runs, one was taken ahead
        asyncio.get_running_loop().call_later(0.1, gate.open)

    await until_holding(raw, QUEUE, 3)
    assert not any(delivery.redelivered for delivery in await taken(raw, QUEUE, 3))
