"""Arguments and results travel compressed as the settings of each side say, and arrive as they were."""

import pytest
from tests.integration.pool.pool import opened, send, taken

from canoa import Canoa
from canoa.broker import topology
from canoa.wire.compression import decompress
from canoa.wire.compression_policy import Compression

TEXT = "the same again and again. " * 1000


def echoing(monkeypatch: pytest.MonkeyPatch, broker: str, **environment: str) -> Canoa:
    for name, value in environment.items():
        monkeypatch.setenv(f"CANOA_{name.upper()}", value)
    app = Canoa("shop", broker=broker)

    @app.action
    async def echo(text: str) -> str:
        return text

    return app


@pytest.mark.parametrize("algorithm", Compression)
async def test_whatever_the_algorithm_a_call_gives_what_it_should(
    app_broker: str, algorithm: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = echoing(monkeypatch, app_broker, layer="fog", compression_fog=f"{algorithm}:1")

    async with app, app.worker():
        assert await app.find("echo").call(TEXT) == TEXT


@pytest.mark.parametrize(("rule", "encoding"), [("snappy:1", "snappy"), ("gzip:1000000", None), ("none", None)])
async def test_arguments_are_compressed_by_the_rule_of_the_callers_layer(
    rule: str, encoding: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = echoing(monkeypatch, "memory://", layer="edge", compression_edge=rule)
    async with app.worker():
        pass

    async with app, opened(app) as raw:
        await app.find("echo").submit(TEXT)
        (sent,) = await taken(raw, topology.action_queue_name(app.find("echo").name), 1)

    assert sent.message.content_encoding == encoding


async def test_results_are_compressed_by_the_rule_of_the_workers_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    app = echoing(monkeypatch, "memory://", layer="edge", compression_edge="lz4:1")
    replies = topology.reply_queue("somebody")

    async with app.worker(), opened(app) as raw:
        await raw.declare(replies)
        await send(raw, "shop.echo", b'{"text":"' + b"a" * 1000 + b'"}', message_id="1", reply_to=replies.name)
        (answer,) = await taken(raw, replies.name, 1)

    assert answer.message.content_encoding == "lz4"
    assert decompress(answer.message.body, "lz4", limit_bytes=2000) == b'"' + b"a" * 1000 + b'"'
