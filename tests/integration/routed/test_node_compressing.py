"""A node compresses its answers by the rule of its layer, for managers that read it, and reads what they compress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.routed.bare_manager import NODE, BareManager, asking

from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.errors import SettingError
from canoa.vocabulary import Layer
from canoa.wire import sapparchi
from canoa.wire.compression_policy import Compression, CompressionRule
from canoa.wire.ids import new_task_id
from canoa.wire.packing import packed
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from canoa import Canoa

AT_THE_EDGE = WorkerSettings(node_id=NODE, layer=Layer.EDGE)
OURS = {sapparchi.OWNER: sapparchi.MANAGER}
TEXT = "the same again and again. " * 100


def echoing(app: Canoa) -> None:
    @app.action
    async def echo(text: str) -> str:
        return text


async def test_a_large_answer_to_a_manager_of_ours_is_compressed(app: Canoa, manager: BareManager) -> None:
    echoing(app)
    async with app.worker_with(AT_THE_EDGE):
        await manager.send("shop.echo", {"text": TEXT}, headers=OURS)
        large = await manager.answer()
        other_id = sapparchi.request_id(new_task_id(), 0, 1, 1)
        await manager.send("shop.echo", {"text": "x"}, headers=OURS, request_id=other_id)
        small = await manager.answer()

    assert (large.value, large.encoding) == (TEXT, "zstd")
    assert (small.value, small.encoding) == ("x", None)


async def test_whoever_does_not_say_that_he_is_one_gets_every_answer_as_published(
    app: Canoa, manager: BareManager
) -> None:
    echoing(app)
    async with app.worker_with(AT_THE_EDGE):
        await manager.send("shop.echo", {"text": TEXT})
        answered = await manager.answer()

    assert (answered.value, answered.encoding) == (TEXT, None)


async def test_what_comes_in_bundles_is_compressed_part_by_part(app: Canoa, manager: BareManager) -> None:
    echoing(app)
    rule = CompressionRule(Compression.GZIP, 300)
    ids = [sapparchi.request_id(new_task_id(), 0, 1, 1) for _ in range(3)]  # three attempts, not one sent thrice
    asked = [
        asking("shop.echo", {"text": text}, headers=OURS, request_id=request_id)
        for text, request_id in zip((TEXT, "x", TEXT), ids, strict=True)
    ]
    async with app.worker_with(AT_THE_EDGE):
        await manager.send_together(*(packed(each, rule) for each in asked))
        answered = await manager.answers_together(3)

    assert sorted((len(each.value), each.encoding or "") for each in answered) == [
        (1, ""),
        (len(TEXT), "zstd"),
        (len(TEXT), "zstd"),
    ]


@pytest.mark.parametrize("algorithm", Compression)
async def test_a_node_reads_every_encoding_that_it_says_it_reads(
    memory_app: Canoa, memory_manager: BareManager, algorithm: Compression
) -> None:
    echoing(memory_app)
    async with memory_app.worker_with(AT_THE_EDGE):
        said = (await memory_manager.registration()).headers[sapparchi.ENCODINGS]
        message = packed(asking("shop.echo", {"text": TEXT}, headers=OURS), CompressionRule(algorithm, 1))
        await memory_manager.broker.publish(Publication(message=message, exchange=topology.NODE_UNICAST, key=""))

        assert (await memory_manager.answer()).value == TEXT
    assert algorithm in str(said).split(",")
    assert message.content_encoding == algorithm


async def test_a_node_says_its_link_budget_when_it_registers(memory_app: Canoa, memory_manager: BareManager) -> None:
    echoing(memory_app)
    async with memory_app.worker_with(WorkerSettings(node_id=NODE, link_budget="10MB/day")):
        assert (await memory_manager.registration()).headers[sapparchi.LINK_BUDGET] == "10MB/day"


def test_a_link_budget_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SettingError, match="link_budget is 'lots'"):
        WorkerSettings(link_budget="lots")
