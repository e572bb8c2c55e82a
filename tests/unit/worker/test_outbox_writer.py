"""The outbox of an event loop: many answers in one write, and a disk that says no stops nobody."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.unit.worker.test_outbox_bounds import answer

from canoa.worker.outbox import Dropped, Entry, Kept, Outbox, OutboxLimits
from canoa.worker.outbox_writer import OutboxWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest


@asynccontextmanager
async def writing(path: Path, max_messages: int = 100) -> AsyncIterator[OutboxWriter]:
    writer = OutboxWriter(path, OutboxLimits(max_messages=max_messages))
    await writer.open()
    yield writer
    await writer.aclose()


async def put(writer: OutboxWriter, *entries: Entry) -> list[Kept | Dropped]:
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[Kept | Dropped]] = [loop.create_future() for _ in entries]
    for entry, end in zip(entries, ends, strict=True):
        writer.put(entry, end.set_result)
    return await asyncio.gather(*ends)


async def test_what_comes_together_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = 0
    group = Outbox.group

    def counted(self: Outbox) -> object:
        nonlocal groups
        groups += 1
        return group(self)

    monkeypatch.setattr(Outbox, "group", counted)
    async with writing(tmp_path / "box.db") as writer:
        outcomes = await put(writer, *(answer(f"r{number}") for number in range(100)))

        assert [type(each) for each in outcomes] == [Kept] * 100
        assert groups == 1
        assert writer.stats.messages == 100


async def test_what_it_answers_is_known_at_once_and_after_a_reopening(tmp_path: Path) -> None:
    async with writing(tmp_path / "box.db") as writer:
        [outcome] = await put(writer, answer("t.0.1.1", attempt="t.0.1"))
        assert isinstance(outcome, Kept)
        writer.sent(outcome.id)
        assert "t.0.1.1" in writer
    async with writing(tmp_path / "box.db") as writer:
        assert writer.stats.messages == 0
        assert writer.knows("t.0.1.2", "t.0.1")
        assert writer.answered_as("t.0.1") == "t.0.1.1"
        assert not writer.knows("t.0.2.1", "t.0.2")
        assert not writer.knows("other", "")


async def test_what_gave_way_is_no_longer_known(tmp_path: Path) -> None:
    async with writing(tmp_path / "box.db", max_messages=1) as writer:
        await put(writer, answer("a", attempt="of-a"), answer("b"))

        assert not writer.knows("a", "of-a")
        assert "b" in writer
        assert writer.stats.dropped == 1


async def test_a_disk_that_says_no_is_counted_and_heard_and_over_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Outbox.put

    def full(self: Outbox, entry: Entry) -> Kept | Dropped:
        raise sqlite3.OperationalError("database or disk is full")

    async with writing(tmp_path / "box.db") as writer:
        monkeypatch.setattr(Outbox, "put", full)
        [outcome] = await put(writer, answer("a"))
        assert isinstance(outcome, Dropped)
        assert outcome.is_refused
        assert "disk is full" in outcome.why
        assert writer.stats.dropped == 1

        monkeypatch.setattr(Outbox, "put", kept)
        [outcome] = await put(writer, answer("a"))
        assert isinstance(outcome, Kept)


async def test_without_a_file_it_is_not_usable_and_nobody_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with writing(tmp_path / "file" / "box.db") as writer:
        assert not writer.is_usable

        [outcome] = await put(writer, answer("a"))

        assert isinstance(outcome, Dropped)


async def test_all_that_was_put_is_written_before_it_closes(tmp_path: Path) -> None:
    async with writing(tmp_path / "box.db") as writer:
        for number in range(10):
            writer.put(answer(f"r{number}"), lambda _: None)

    async with writing(tmp_path / "box.db") as writer:
        assert writer.stats.messages == 10
