"""Running until told to stop: signals, the first connection, and the way out. Shared by `worker` and `up`.

The first SIGTERM or SIGINT drains, the second ends at once. They are handled also when the program was started in the
background, where a shell leaves SIGINT ignored.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import start_http_server

from canoa.errors import BrokerUnreachable, SettingError
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

    from canoa.app import Canoa
    from canoa.worker.worker import Worker, WorkerSettings

log = get_logger(__name__)

TRY_AGAIN_AFTER_S: Final = 1.0


def run(main: Coroutine[Any, Any, None]) -> None:
    """On uvloop where there is one. A thread that an interrupted action left behind does not keep the process alive."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        asyncio.run(main)
    else:
        uvloop.run(main)
    if any(thread.name.startswith("canoa-") and thread.is_alive() for thread in threading.enumerate()):
        _leave_threads_behind()


def _leave_threads_behind() -> None:
    """Python joins pool threads at exit. Idle ones end at once; one that still runs an action may take for ever."""
    deadline_s = 0.2
    for thread in threading.enumerate():
        if thread.name.startswith("canoa-"):
            thread.join(deadline_s)
            if thread.is_alive():
                log.warning("thread_left_behind", thread=thread.name)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)


def stop_requested() -> asyncio.Event:
    """Set by the first signal."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


@asynccontextmanager
async def started(app: Canoa, settings: WorkerSettings, *, within_s: float) -> AsyncIterator[Worker]:
    """A running worker. A broker that is not there yet is waited for: services start in any order."""
    give_up_s = asyncio.get_running_loop().time() + within_s
    async with AsyncExitStack() as stack:
        yield await _entered(app, settings, stack, give_up_s)


async def _entered(app: Canoa, settings: WorkerSettings, stack: AsyncExitStack, give_up_s: float) -> Worker:
    while True:
        try:
            return await stack.enter_async_context(app.worker_with(settings))
        except BrokerUnreachable as exc:
            if asyncio.get_running_loop().time() + TRY_AGAIN_AFTER_S > give_up_s:
                raise
            log.warning("broker_not_there_yet", reason=str(exc))
            await asyncio.sleep(TRY_AGAIN_AFTER_S)


@contextmanager
def metrics_served(worker: Worker, place: str) -> Iterator[None]:
    """Prometheus metrics at host:port while the block runs; nowhere when `place` is empty."""
    if not place:
        yield
        return
    host, _, port = place.rpartition(":")
    if not port.isdecimal():
        raise SettingError(f"--metrics {place!r} is not host:port; write 127.0.0.1:9420")
    try:
        server, thread = start_http_server(int(port), addr=host or "127.0.0.1", registry=worker.registry)
    except OSError as exc:
        raise SettingError(f"cannot serve metrics at {place}: {exc.strerror}") from exc
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


async def until_stopped(worker: Worker, stop: asyncio.Event) -> None:
    """Returns on a signal; raises when the worker can no longer receive work."""
    failed = asyncio.ensure_future(worker.wait_failed())
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([failed, stopped], return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            await failed
    finally:
        failed.cancel()
        stopped.cancel()
