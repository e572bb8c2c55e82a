"""Bytes that are not what they claim are refused with the reason; the worker goes on, and nothing is lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import cramjam
import pytest
from tests.contract.broker.inbox import letter, until_holding
from tests.integration.pool.pool import dead_letter, dead_letters, sample, send, taken, until

from canoa import Canoa, TaskRefused
from canoa.broker import topology
from canoa.broker.port import Queue
from canoa.client.metrics import METRICS
from canoa.vocabulary import TaskId
from canoa.wire import result
from canoa.wire.codec import ContentType

if TYPE_CHECKING:
    from canoa.broker.port import Broker, Message

LIMIT = 100_000
BOMB = bytes(cramjam.zstd.compress(b"\0" * 50_000_000))
DEEP = b'{"number":' + b"[" * 40_000 + b"]" * 40_000 + b"}"

BAD: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "broken JSON": (
        b'{"number": 1',
        {},
        "a body of 12 bytes is not application/json: .*; check how the sender",
    ),
    "no bytes": (b"", {}, "a body of 0 bytes is not application/json"),
    "broken msgpack": (b"\xc1\xff", {"content_type": "application/msgpack"}, "is not application/msgpack"),
    "cut msgpack": (b"\x81\xa6num", {"content_type": "application/msgpack"}, "is not application/msgpack"),
    "JSON called msgpack": (b'{"number": 1}', {"content_type": "application/msgpack"}, "Expected `obj|not appl"),
    "not compressed": (
        b'{"number": 1}',
        {"content_encoding": "zstd"},
        "a body of 13 bytes is not zstd: .*; check",
    ),
    "cut compression": (BOMB[:30], {"content_encoding": "zstd"}, "unpacked, is 50,000,000 bytes|not zstd"),
    "unknown compression": (b"x", {"content_encoding": "br"}, "content encoding 'br' is unknown; send the body plain"),
    "decompression bomb": (
        BOMB,
        {"content_encoding": "zstd"},
        "unpacked, is 50,000,000 bytes, over the limit",
    ),
    "deep nesting": (DEEP, {}, "the body is nested too deeply: more than [0-9]+ levels; flatten it"),
    "unknown content type": (b"1", {"content_type": "text/html"}, "content type 'text/html' is unknown; send one of"),
    "oversized": (
        b'{"number":' + b" " * LIMIT + b"1}",
        {},
        "the body is 100,012 bytes, over the limit of 100,000",
    ),
    "no object": (b"[1]", {}, r"Expected `object`, got `array`, at `\$`; it takes \(number: int\)"),
    "wrong type": (b'{"number": "1"}', {}, r"shop.double: Expected `int`, got `str`, at `\$.number`; it takes"),
    "missing argument": (b"{}", {}, "missing required field `number`"),
    "unknown argument": (b'{"number": 1, "width": 2}', {}, "there is no parameter 'width'"),
    "not UTF-8": (b'{"number": "\xff"}', {}, "is not application/json|Expected `int`"),
}


@pytest.fixture
def double(app_broker: str, app: Canoa) -> Canoa:
    """An app with one action, and a small limit."""
    limited = Canoa("shop", broker=app_broker, max_payload_bytes=LIMIT)
    app.settings = limited.settings

    @app.action(retry=3, name="double")
    async def _(number: int) -> int:
        return number * 2

    return app


async def test_every_bad_body_is_a_dead_letter_that_says_why_and_the_worker_goes_on(double: Canoa, raw: Broker) -> None:
    async with double.worker() as worker:
        for name, (body, properties, _) in BAD.items():
            await send(raw, "shop.double", body, **{"message_id": name, **properties})
        letters = await dead_letters(raw, len(BAD))

        assert {each.message_id for each in letters} == set(BAD)
        for each in letters:
            body, _, said = BAD[str(each.message_id)]
            assert each.body == body
            assert each.headers["canoa-reason"] == "refused"
            assert re.search(said, str(each.headers["canoa-error"]))
        assert await double.find("double").call(2) == 4
        refused = sample(worker, "canoa_actions_total", action="shop.double", layer="CLOUD", outcome="refused")
        assert refused == len(BAD)
    await until_holding(raw, topology.action_queue_name("shop.double"), 0)


async def answer(raw: Broker, body: bytes, **properties: Any) -> Message:
    """What another program hears that sent this."""
    await raw.declare(Queue(name="answers"))
    await send(raw, "shop.double", body, reply_to="answers", **properties)
    (delivery,) = await taken(raw, "answers", 1)
    return delivery.message


@pytest.mark.parametrize("name", BAD)
async def test_a_caller_that_sent_a_bad_body_is_told_why(memory_app: Canoa, memory_raw: Broker, name: str) -> None:
    memory_app.settings = Canoa("shop", broker="memory://", max_payload_bytes=LIMIT).settings
    body, properties, said = BAD[name]

    @memory_app.action(retry=3)
    async def double(number: int) -> int:
        return number * 2

    async with memory_app.worker():
        told = await answer(memory_raw, body, message_id="a", **properties)

    error = result.error_from(told, TaskId("a"))
    assert isinstance(error, TaskRefused)
    assert re.search(said, str(error))
    assert (await memory_raw.depth(topology.DEAD)).messages == 0  # told is told


async def test_a_bad_body_sent_by_hand_comes_back_as_an_error(app: Canoa) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    async with app.worker():
        sound = await app.submit_raw("shop.double", b"\x81\xa6number\x04", content_type=ContentType.MSGPACK)
        assert await sound.result(10) == 8
        broken = await app.submit_raw("shop.double", b'{"number": ')
        with pytest.raises(TaskRefused, match="a body of 11 bytes is not application/json"):
            await broken.result(10)


async def test_a_message_without_an_id_is_a_dead_letter(app: Canoa, raw: Broker) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    async with app.worker():
        await send(raw, "shop.double", b'{"number": 1}', message_id=None, mandatory=False)
        buried = await dead_letter(raw)
        assert await double.call(2) == 4

    assert buried.headers["canoa-error"] == "the task has no message_id; send one, unique per task"
    assert buried.headers["canoa-reason"] == "refused"


# --- Answers ----------------------------------------------------------------------------------------

BAD_ANSWERS: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "broken result": (b"4 4", {"type": "ok"}, "answered with a result that cannot be used: .* is not application/json"),
    "wrong result": (b'"text"', {"type": "ok"}, "cannot be used: Expected `int`, got `str`"),
    "result bomb": (BOMB, {"type": "ok", "content_encoding": "zstd"}, "over the limit of 1,048,576"),
    "broken failure": (b"\xff", {"type": "failed"}, "ended with an answer that cannot be read"),
    "no type": (b"4", {}, "ended with an answer that cannot be read"),
    "unknown type": (b"{}", {"type": "exploded"}, "ended with an answer that cannot be read"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_an_answer_that_cannot_be_used_ends_its_handle_and_no_other(
    memory_app: Canoa, memory_raw: Broker, name: str
) -> None:
    body, properties, said = BAD_ANSWERS[name]

    @memory_app.action
    async def double(number: int) -> int:
        return number * 2

    async with memory_app.worker():
        pass
    bad, good = await double.submit_many([1, 2])
    (first,) = await taken(memory_raw, topology.action_queue_name("shop.double"), 1)
    assert first.message.reply_to is not None
    await memory_raw.publish(letter(first.message.reply_to, body, correlation_id=bad.id, **properties))

    with pytest.raises(TaskRefused, match=said):
        await bad.result(10)
    async with memory_app.worker():
        assert await good.result(10) == 4


async def test_an_answer_to_nothing_we_asked_is_counted_and_dropped(memory_app: Canoa, memory_raw: Broker) -> None:
    @memory_app.action
    async def double(number: int) -> int:
        return number * 2

    async with memory_app.worker():
        before = METRICS.duplicates
        handle = await double.submit(1)
        reply_to = (await memory_app.session())._reply_to
        for correlation_id in (None, "", "nobody", "ação"):
            await memory_raw.publish(letter(reply_to, b"1", correlation_id=correlation_id))

        assert await handle.result(10) == 2
        await until(lambda: METRICS.duplicates == before + 4)
        assert await double.call(2) == 4
