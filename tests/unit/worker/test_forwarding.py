"""What waits in the outbox is sent oldest first, and again while the way is closed; by any way that is one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.unit.worker.test_outbox_bounds import answer
from tests.unit.worker.test_outbox_writer import put, writing

from canoa.errors import BrokerUnreachable, Unroutable, WrongUse
from canoa.worker import forwarding
from canoa.worker.forwarding import Forwarder
from canoa.worker.outbox import Kept

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from canoa.broker.port import Message, PublishOutcome
    from canoa.worker.answer_way import AnswerWay
    from canoa.worker.outbox import Dropped
    from canoa.worker.outbox_writer import OutboxWriter

pytestmark = pytest.mark.timeout(30)


class Way:
    """Says of each message what it was told to, once each; then that it arrived."""

    def __init__(self, *outcomes: PublishOutcome) -> None:
        self.arrived: list[str | None] = []
        self.tries = 0
        self._outcomes = list(outcomes)

    @property
    def is_open(self) -> bool:
        return True

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        self.tries += 1
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if outcome is None:
            self.arrived.append(message.message_id)
        asyncio.get_running_loop().call_soon(on_outcome, outcome)


_port: type[AnswerWay] = Way


@asynccontextmanager
async def filled(tmp_path: Path, count: int) -> AsyncIterator[tuple[OutboxWriter, list[Kept | Dropped]]]:
    async with writing(tmp_path / "box.db", max_messages=1000) as writer:
        yield writer, await put(writer, *(answer(f"r{number}") for number in range(count)))


async def until_empty(writer: OutboxWriter) -> None:
    while writer.stats.messages:  # noqa: ASYNC110  # written by a thread
        await asyncio.sleep(0.01)


async def test_all_that_waits_is_sent_oldest_first_however_much_it_is(tmp_path: Path) -> None:
    way = Way()
    async with filled(tmp_path, 300) as (writer, _):
        Forwarder(writer, way, on_sent=lambda: None).wake()
        await until_empty(writer)

    assert way.arrived == [f"r{number}" for number in range(300)]


async def test_while_the_way_is_closed_it_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "REPEAT_AFTER_S", 0.02)
    way, freed = Way(*[BrokerUnreachable("gone")] * 7), 0

    def on_sent() -> None:
        nonlocal freed
        freed += 1

    async with filled(tmp_path, 3) as (writer, _):
        Forwarder(writer, way, on_sent=on_sent).wake()
        await until_empty(writer)

    assert sorted(map(str, way.arrived)) == ["r0", "r1", "r2"]
    assert (way.tries, freed) == (10, 3)


async def test_what_can_never_be_sent_or_is_not_wanted_holds_up_no_other(tmp_path: Path) -> None:
    way = Way(WrongUse("too long a header"), Unroutable("nobody"))
    async with filled(tmp_path, 3) as (writer, _):
        Forwarder(writer, way, on_sent=lambda: None).wake()
        await until_empty(writer)

        assert writer.stats.dropped == 1
    assert way.arrived == ["r2"]


async def test_what_somebody_else_sends_right_now_is_left_to_him(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "REPEAT_AFTER_S", 0.02)
    way = Way()
    async with filled(tmp_path, 2) as (writer, [first, _]):
        assert isinstance(first, Kept)
        forwarder = Forwarder(writer, way, on_sent=lambda: None)
        forwarder.hold(first.id)
        forwarder.wake()
        while writer.stats.messages > 1:  # noqa: ASYNC110  # written by a thread
            await asyncio.sleep(0.01)
        assert way.arrived == ["r1"]

        forwarder.release(first.id)
        await until_empty(writer)

    assert way.arrived == ["r1", "r0"]
