"""Options of one submit reach the worker; those that no worker could use are refused before they are sent."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.integration.pool.pool import until

from canoa import ActionFailed, Backoff, Canoa, UnknownAction
from canoa.errors import SettingError


async def test_options_travel_with_the_task(memory_app: Canoa) -> None:
    attempts: list[int] = []

    @memory_app.action(retry=5, backoff=Backoff(first_s=0.01, cap_s=0.01), timeout=30)
    async def fails() -> None:
        attempts.append(1)
        await asyncio.sleep(5 if len(attempts) == 2 else 0)
        raise ValueError

    async with memory_app.worker():
        with pytest.raises(ActionFailed):
            await fails.using(retry=0).call()
        assert len(attempts) == 1
        with pytest.raises(ActionFailed):
            await fails.using(timeout=0.05, retry=1).call()
        assert len(attempts) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 0}, "timeout=0: use seconds above 0"),
        ({"timeout": float("nan")}, "timeout=nan: use seconds above 0"),
        ({"timeout": "5"}, "timeout='5': use seconds above 0"),
        ({"queue_timeout": -1}, "queue_timeout=-1: use seconds above 0"),
        ({"queue_timeout": 1e300}, r"queue_timeout=1e\+300: use seconds above 0, at most 315,360,000"),
        ({"retry": -1}, "retry=-1: use 0"),
        ({"retry": 2**31}, "retry=2147483648: use 0"),
        ({"idempotency_key": ""}, "idempotency_key='': use a text of 1 to 255"),
        ({"idempotency_key": 7}, "idempotency_key=7: use a text"),
        ({"after": -1}, "after=-1: use seconds above 0"),
        ({"after": True}, "after=True: use seconds above 0"),
        ({"after": 1, "at": datetime.now(UTC)}, "after=1 and at=.*: use one of them"),
        (
            {"at": datetime(2030, 1, 1)},
            r"at=2030-01-01 00:00:00: use a datetime with a time zone, such as datetime.now",
        ),
        ({"at": 1893456000}, "at=1893456000: use a datetime with a time zone"),
        ({"at": datetime(2100, 1, 1, tzinfo=UTC)}, "at=2100-01-01 .*: use a time within the next ten years"),
        ({"result": "later"}, "result='later': use 'reply', 'keep'"),
        (
            {"priority": 1},
            r"priority=1: shop.double keeps no priorities apart; define it with @app.action\(priorities=5\)",
        ),
    ],
)
async def test_options_that_no_worker_could_use_are_refused_before_they_are_sent(
    memory_app: Canoa, options: dict[str, object], said: str
) -> None:
    @memory_app.action
    async def double(number: int) -> int:
        return number * 2

    with pytest.raises(SettingError, match=said):
        await double.using(**options).submit(1)  # type: ignore[arg-type]


async def test_a_queue_timeout_of_months_is_taken(app: Canoa) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    async with app.worker():
        assert await double.using(queue_timeout=90 * 86_400).call(2) == 4


async def test_without_a_result_a_submit_still_means_accepted(app: Canoa) -> None:
    seen: list[int] = []

    @app.action
    async def note(number: int) -> int:
        seen.append(number)
        return number

    with pytest.raises(UnknownAction, match=r"no worker has ever offered action 'shop.note' on this broker; "):
        await note.using(result="none").call(1)
    async with app.worker():
        handle = await note.using(result="none").submit(2)
        assert handle.is_done
        assert await handle.result() is None
        await until(lambda: seen == [2])
