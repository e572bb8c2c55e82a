"""What is submitted through the desk is compressed as the settings say, in the queue and in the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.integration.keep.keeping import Keeping

from canoa.recorder.views import Request

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

WITHIN_S = 10.0


async def test_the_desk_compresses_by_the_rule_of_its_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANOA_COMPRESSION_CLOUD", "snappy:100")
    may_end = asyncio.Event()

    async with Keeping("memory://", tmp_path) as keeping:

        @keeping.app.action()
        async def length(text: str) -> int:
            await may_end.wait()
            return len(text)

        await keeping.start()
        submitted = await keeping.desk.submit(Request(action="shop.length", arguments={"text": "a" * 1000}))
        (stored,) = await keeping.hosted.recorder.store.unfinished(limit=10)
        may_end.set()

        assert await keeping.app.handle(submitted.id).result(WITHIN_S) == 1000
        assert stored.message.content_encoding == "snappy"
