"""Answers that get lost: the store's behind a commit, the broker's while it takes no messages. Nothing else is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.keep.keeping import Keeping

from canoa.errors import BrokerBlocked, CanoaError, SettingError, StoreUnreachable
from canoa.recorder import hosting
from canoa.store.port import Accept, End
from canoa.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.broker.port import Broker, Message, Publication, PublishOutcome
    from canoa.store.port import Store
    from canoa.vocabulary import TaskId

WITHIN_S = 20.0


@pytest.mark.rabbitmq
@pytest.mark.parametrize("kind", [Accept, End])
async def test_when_the_answer_to_a_commit_is_lost_the_task_still_runs_and_its_caller_hears(
    rabbit_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    lost = _lose_the_first_answer(monkeypatch, kind, error=StoreUnreachable("it broke before the answer came"))
    async with Keeping(rabbit_url, tmp_path) as keeping:

        @keeping.app.action()
        async def double(number: int) -> int:
            return 2 * number

        await keeping.start()
        handles = await double.using(result="keep").submit_many(range(20))

        assert [await handle.result(WITHIN_S) for handle in handles] == [2 * number for number in range(20)]
        assert lost


@pytest.mark.rabbitmq
@pytest.mark.parametrize("kind", [Accept, End])
async def test_what_comes_while_the_store_may_not_be_written_waits_for_better_times(
    rabbit_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    lost = _lose_the_first_answer(monkeypatch, kind, error=SettingError("attempt to write a readonly database"))
    async with Keeping(rabbit_url, tmp_path) as keeping:

        @keeping.app.action()
        async def double(number: int) -> int:
            return 2 * number

        await keeping.start()
        handle = await double.using(result="keep").submit(21)

        assert await handle.result(WITHIN_S) == 42
        assert lost


def _lose_the_first_answer(monkeypatch: pytest.MonkeyPatch, kind: type[Any], *, error: CanoaError) -> list[int]:
    """As when the link to a database breaks behind a commit. How many changes it was about."""
    lost: list[int] = []

    class Forgetful(SqliteStore):
        async def apply(self, changes: Sequence[Any]) -> list[Any]:
            answers = await super().apply(changes)
            if not lost and any(isinstance(change, kind) for change in changes):
                lost.append(len(changes))
                raise error
            return answers

    def opened(url: str) -> SqliteStore:
        return Forgetful(Path(url.removeprefix("sqlite:///")))

    monkeypatch.setattr(hosting, "new_store", opened)
    return lost


async def test_a_caller_hears_of_its_result_once_the_broker_takes_messages_again(
    memory_keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    @memory_keeping.app.action()
    async def double(number: int) -> int:
        return 2 * number

    await memory_keeping.start()
    blocked = _block_the_first_reply(monkeypatch, memory_keeping.hosted.recorder.broker)

    handle = await double.using(result="keep").submit(21)

    assert await handle.result(WITHIN_S) == 42
    assert blocked == [handle.id]


def _block_the_first_reply(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> list[str | None]:
    """As under an alarm, which blocks publishing alone: acknowledgements pass all the while. Whose reply it was."""
    blocked: list[str | None] = []
    post = broker.post

    def posted(publication: Publication, on_outcome: Callable[[PublishOutcome], None], *, later: bool = False) -> None:
        if blocked or not publication.key.startswith("canoa.reply."):
            post(publication, on_outcome, later=later)
            return
        blocked.append(publication.message.correlation_id)
        asyncio.get_running_loop().call_soon(on_outcome, BrokerBlocked("the broker takes no messages (memory)"))

    monkeypatch.setattr(broker, "post", posted)
    return blocked


@pytest.mark.rabbitmq
async def test_a_known_key_is_answered_also_when_the_store_was_away_at_first(
    rabbit_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Keeping(rabbit_url, tmp_path) as keeping:

        @keeping.app.action()
        async def double(number: int) -> int:
            return 2 * number

        await keeping.start()
        once = double.using(result="keep", idempotency_key="order-7")
        await (await once.submit(21)).result(WITHIN_S)
        refused = _refuse_the_first_question(monkeypatch, keeping.hosted.recorder.store)

        again = await once.submit(21)

        assert await again.result(WITHIN_S) == 42
        assert refused == [again.id]


def _refuse_the_first_question(monkeypatch: pytest.MonkeyPatch, store: Store) -> list[str]:
    refused: list[str] = []
    result = store.result

    async def asked(task_id: TaskId) -> Message | None:
        if refused:
            return await result(task_id)
        refused.append(task_id)
        raise StoreUnreachable("away")

    monkeypatch.setattr(store, "result", asked)
    return refused
