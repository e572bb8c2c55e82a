"""How a worker ends: what runs may finish, what waits is left to others, and nothing holds it for longer than asked."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.acceptance.shell import CANOA, DEPOT, Process, Shell, until

from canoa import Canoa
from canoa.errors import ResultNotReady

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from canoa import Handle

# What a shell does to SIGINT for the programs it starts in the background.
IN_THE_BACKGROUND = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"]


class Caller:
    """Submits to the depot from outside."""

    def __init__(self, app: Canoa, folder: Path) -> None:
        self._app = app
        self._folder = folder

    async def submit(self, action: str) -> Handle[Any]:
        return await self._app.submit_raw(action, json.dumps({"folder": str(self._folder)}).encode())

    async def start(self, action: str) -> Handle[Any]:
        """Return once it runs."""
        handle = await self.submit(action)
        await asyncio.to_thread(until, (self._folder / "started").exists)
        return handle

    def release(self) -> None:
        (self._folder / "release").touch()

    async def waiting(self, action: str) -> int:
        return (await self._app.depth(action)).messages


@asynccontextmanager
async def calling(url: str, folder: Path) -> AsyncIterator[Caller]:
    async with Canoa("depot", broker=url) as app:
        yield Caller(app, folder)


async def ended(worker: Process) -> int:
    return await asyncio.to_thread(worker.wait)


async def draining(worker: Process) -> None:
    await asyncio.to_thread(worker.wait_logged, "worker_draining")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_what_runs_may_finish_and_what_waits_is_handed_back(
    online: Shell, rabbit_url: str, tmp_path: Path, number: signal.Signals
) -> None:
    worker = online.start_worker("--concurrency", "1")
    async with calling(rabbit_url, tmp_path) as caller:
        running = await caller.start("depot.hold")
        waiting = [await caller.submit("depot.hold") for _ in range(2)]

        worker.send(number)
        await draining(worker)
        caller.release()

        assert await running.result(timeout=20) == "held"
        assert await ended(worker) == 0
        assert await caller.waiting("depot.hold") == 2

        online.start_worker()
        assert [await each.result(timeout=20) for each in waiting] == ["held", "held"]


async def test_sigint_is_heard_also_in_the_background_and_twice_at_once_is_one_wish(
    online: Shell, rabbit_url: str, tmp_path: Path
) -> None:
    worker = online.start(*IN_THE_BACKGROUND, str(CANOA), "worker", DEPOT)
    await asyncio.to_thread(worker.wait_logged, "worker_ready")
    async with calling(rabbit_url, tmp_path) as caller:
        running = await caller.start("depot.hold")

        worker.send(signal.SIGINT)
        await draining(worker)
        worker.send(signal.SIGINT)
        worker.send(signal.SIGTERM)
        with pytest.raises(ResultNotReady):
            await running.result(timeout=0.5)
        caller.release()

        assert await running.result(timeout=20) == "held"
        assert await ended(worker) == 0


async def test_a_second_signal_later_ends_it_at_once_and_loses_nothing(
    online: Shell, rabbit_url: str, tmp_path: Path
) -> None:
    worker = online.start_worker()
    async with calling(rabbit_url, tmp_path) as caller:
        running = await caller.start("depot.hold")
        worker.send(signal.SIGTERM)
        await draining(worker)
        with pytest.raises(ResultNotReady):
            await running.result(timeout=1.2)

        worker.send(signal.SIGTERM)

        assert await ended(worker) == 128 + signal.SIGTERM
        online.start_worker()
        caller.release()
        assert await running.result(timeout=20) == "held"


async def test_what_does_not_finish_within_the_bound_is_handed_back(
    online: Shell, rabbit_url: str, tmp_path: Path
) -> None:
    worker = online.start_worker("--drain", "0.2")
    async with calling(rabbit_url, tmp_path) as caller:
        running = await caller.start("depot.hold")

        worker.send(signal.SIGTERM)

        assert await ended(worker) == 0
        assert await caller.waiting("depot.hold") == 1
        online.start_worker()
        caller.release()
        assert await running.result(timeout=20) == "held"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_of_cpu_actions_end_with_their_worker(online: Shell, number: signal.Signals) -> None:
    worker = online.start(str(CANOA), "worker", "examples.shop:app")
    worker.wait_logged("worker_ready")
    called = online.canoa("call", "shop.fingerprint", '{"text": "abc", "rounds": 10}')
    assert called.returncode == 0, called.stderr
    children = psutil.Process(worker.pid).children(recursive=True)
    assert children

    worker.send(number)

    assert worker.wait() == (0 if number is signal.SIGTERM else -number)
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert (len(gone), alive) == (len(children), [])


async def test_a_thread_that_never_ends_does_not_keep_the_process(
    online: Shell, rabbit_url: str, tmp_path: Path
) -> None:
    worker = online.start_worker("--drain", "0.2")
    async with calling(rabbit_url, tmp_path) as caller:
        await caller.start("depot.stick")
        began_s = time.monotonic()

        worker.send(signal.SIGTERM)

        assert await ended(worker) == 0
        assert time.monotonic() - began_s < 10
        assert worker.events()[-1]["event"] == "thread_left_behind"
        assert await caller.waiting("depot.stick") == 1
