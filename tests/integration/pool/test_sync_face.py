"""`app.sync` gives the same without asyncio: from any thread, beside a worker or inside its actions."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from canoa import ActionFailed, Canoa, Context, DeliveryUnknown, ResultNotReady, TaskCancelled, UnknownAction, WrongUse


@pytest.fixture
def sync_app(app_broker: str) -> Iterator[Canoa]:
    app = Canoa("shop", broker=app_broker)
    yield app
    app.sync.close()


def test_a_program_without_asyncio_submits_calls_and_maps(sync_app: Canoa) -> None:
    @sync_app.action
    async def double(number: int) -> int:
        return number * 2

    with sync_app.sync.worker(concurrency=5):
        assert sync_app.sync.call(double, 4) == 8
        handle = sync_app.sync.submit(double, number=5)
        assert handle.result(timeout=10) == 10
        assert handle.is_done
        assert [each.result(10) for each in sync_app.sync.submit_many(double, [1, 2])] == [2, 4]
        assert sorted(sync_app.sync.map(double, range(100), in_flight=7)) == [*range(0, 200, 2)]
        assert sync_app.sync.call(double.using(retry=1), 6) == 12


def test_many_threads_share_one_connection(sync_app: Canoa) -> None:
    @sync_app.action
    def who(number: int) -> int:
        return number

    with sync_app.sync.worker(), ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda number: sync_app.sync.call(who, number), range(100)))

        assert results == list(range(100))
        assert [thread.name for thread in threading.enumerate()].count("canoa-sync") == 1


def test_errors_come_as_they_are(sync_app: Canoa) -> None:
    @sync_app.action
    def fails() -> None:
        raise ValueError("no")

    @sync_app.action
    def limited() -> None:
        raise TimeoutError("the action's own")

    with pytest.raises(UnknownAction):
        sync_app.sync.call(fails)
    with sync_app.sync.worker():
        with pytest.raises(ActionFailed, match="ValueError: no"):
            sync_app.sync.call(fails)
        with pytest.raises(ActionFailed, match="TimeoutError: the action's own"):
            sync_app.sync.call(limited)
        assert [type(each) for each in sync_app.sync.map(fails, [fails.args()], return_errors=True)] == [ActionFailed]


def test_a_wait_may_end_and_a_task_be_cancelled() -> None:
    app = Canoa("shop", broker="memory://")

    @app.action
    def held(ctx: Context) -> None:
        while not ctx.is_cancelled:
            threading.Event().wait(0.01)

    with app.sync.worker():
        handle = app.sync.submit(held)
        with pytest.raises(ResultNotReady):
            handle.result(timeout=0.01)
        handle.cancel()
        with pytest.raises(TaskCancelled):
            handle.result(10)
    app.sync.close()


def test_a_map_can_be_left_early() -> None:
    app = Canoa("shop", broker="memory://")

    @app.action
    async def double(number: int) -> int:
        return number * 2

    with app.sync.worker():
        for result in app.sync.map(double, range(10**9)):
            assert result == 0
            break
    app.sync.close()


async def test_a_sync_action_submits_more_work_to_the_worker_it_runs_in(app: Canoa) -> None:
    @app.action
    def inner(number: int) -> int:
        return number * 2

    @app.action
    def outer(number: int) -> int:
        return app.sync.call(inner, number) + sum(app.sync.map(inner, range(3)))

    async with app.worker(concurrency=5):
        assert await outer.call(10) == 26

    assert "canoa-sync" not in [thread.name for thread in threading.enumerate()]  # it was not even needed


async def test_an_action_that_finishes_while_the_worker_drains_still_submits(app: Canoa) -> None:
    started, may_go_on = threading.Event(), threading.Event()
    told: list[str] = []

    @app.action
    def note(text: str) -> None: ...

    @app.action
    def last_words() -> None:
        started.set()
        may_go_on.wait(10)
        told.append(app.sync.submit(note.using(result="none"), "bye").id)

    async with app.worker():
        await last_words.using(result="none").submit()
        await asyncio.to_thread(started.wait, 10)
        asyncio.get_running_loop().call_later(0.05, may_go_on.set)

    assert len(told) == 1
    assert (await app.depth("shop.note")).messages == 1


async def test_on_a_running_loop_it_refuses_and_says_what_to_use(memory_app: Canoa) -> None:
    @memory_app.action
    async def double(number: int) -> int:
        return number * 2

    with pytest.raises(WrongUse, match=r"app.sync would block the event loop .*; use `await action.submit\(...\)`"):
        memory_app.sync.call(double, 1)

    assert "canoa-sync" not in [thread.name for thread in threading.enumerate()]


def test_a_thread_whose_loop_ends_is_told_and_does_not_hang() -> None:
    app = Canoa("shop", broker="memory://")
    heard: list[BaseException] = []
    is_waiting = threading.Event()

    @app.action
    async def never() -> None: ...

    def waits() -> None:
        handle = app.sync.submit(never)
        is_waiting.set()
        try:
            handle.result()
        except BaseException as exc:
            heard.append(exc)

    async def main() -> threading.Thread:
        async with app.worker():
            pass
        await app.session()
        thread = threading.Thread(target=waits)
        thread.start()
        await asyncio.to_thread(is_waiting.wait, 10)
        return thread  # without closing the app

    loop = asyncio.new_event_loop()
    thread = loop.run_until_complete(main())
    thread.join(10)
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    assert not thread.is_alive()
    assert isinstance(heard[0], DeliveryUnknown)
    assert "event loop ended before the answer came" in str(heard[0])


def test_a_handle_of_a_closed_app_says_so() -> None:
    app = Canoa("shop", broker="memory://")

    @app.action
    async def double(number: int) -> int:
        return number * 2

    with app.sync.worker():
        handle = app.sync.submit(double, 1)
    app.sync.close()

    with pytest.raises(DeliveryUnknown, match="the app was closed"):
        handle.result()


def test_a_program_that_closes_nothing_ends_cleanly() -> None:
    script = """
from canoa import Canoa
app = Canoa("shop", broker="memory://")

@app.action
def double(number: int) -> int:
    return number * 2

with app.sync.worker():
    print(app.sync.call(double, 4))
"""

    ended = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=30)

    assert (ended.returncode, ended.stdout) == (0, "8\n")
    assert ended.stderr == ""
