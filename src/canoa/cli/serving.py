"""Running until told to stop: signals, the first connection, and the way out. Shared by `worker` and `up`.

The first SIGTERM or SIGINT drains, a second one ends at once; within a second of the first it is taken for the same,
since a signal to the whole group reaches us, and once more when `make` or a supervisor passes its own on. Signals are
handled also when the program was started in the background, where a shell leaves SIGINT ignored.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec
import typer

from canoa.cli import output, tracing
from canoa.cli.listening import listening_error
from canoa.errors import BrokerUnreachable, CanoaError, StoreUnreachable
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from prometheus_client import CollectorRegistry

    from canoa.app import Canoa
    from canoa.worker.settings import WorkerSettings
    from canoa.worker.worker import Worker

log = get_logger(__name__)

T = TypeVar("T")

TRY_AGAIN_AFTER_S: Final = 1.0
FIRST_TRY_S: Final = 1.0
"""A broker that is there is given so long also by who does not want to wait for one."""
SAME_STOP_WITHIN_S: Final = 1.0
IDLE_THREAD_ENDS_WITHIN_S: Final = 0.2


class CannotReceive(CanoaError):
    """A part that was ready can no longer receive work."""


class Part(Protocol):
    """A worker, a recorder: something that runs until it cannot."""

    async def wait_failed(self) -> None: ...


class Measured(Protocol):
    """What counts something: a worker, a manager."""

    @property
    def registry(self) -> CollectorRegistry: ...


SWITCH_AFTER_S: Final = 0.0005
"""How long a thread that wants the interpreter's lock lets another one have it. With Python's 5 ms a store's thread
waits behind a busy event loop after every statement, and a loop behind an action's thread: a fan-out took a tenth
longer (`fanout_join`). Less would switch more often than it helps."""


COLLECT_AFTER: Final = 50_000
MANAGER_COLLECTS_AFTER: Final = 200_000
"""More objects than there were, until Python looks for those that only know each other. A manager has thousands of
tasks in hand: with fewer it stood still for 15 ms, eight times per 5,000 fan-outs, 2 % of its time, to find nothing."""


class StoppedEarly(Exception):
    """A signal came before the worker was ready: there is nothing to drain."""


def run(main: Coroutine[Any, Any, None], *, collect_after: int = COLLECT_AFTER) -> None:
    """On uvloop where there is one. Explains errors, and ends the process also when an action's thread never ends."""
    code = 0
    _collect_rarely(collect_after)
    sys.setswitchinterval(SWITCH_AFTER_S)
    try:
        with output.errors_explained():
            _run_loop(main)
    except StoppedEarly:
        pass
    except typer.Exit as end:
        code = end.exit_code
    _leave_threads_behind(code)
    raise typer.Exit(code)


def _collect_rarely(after: int) -> None:
    """What a delivery allocates dies by its reference count. Python's own thresholds, made for scripts, would walk all
    that lives once per 700 messages: a tenth of a busy worker's time (`drain_1`)."""
    gc.freeze()
    gc.set_threshold(after, 20, 100)


def _run_loop(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        asyncio.run(main)
    else:
        uvloop.run(main)


def _leave_threads_behind(code: int) -> None:
    """Python joins pool threads at exit. Idle ones end at once; one that still runs an action may take for ever."""
    for thread in threading.enumerate():
        if thread.name.startswith("canoa-"):
            thread.join(IDLE_THREAD_ENDS_WITHIN_S)
            if thread.is_alive():
                log.warning("thread_left_behind", thread=thread.name)
                _end_at_once(code)


def _end_at_once(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def stop_requested() -> asyncio.Event:
    """Set by the first signal."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    asked_s = 0.0

    def on_signal(number: int) -> None:
        nonlocal asked_s
        if not stop.is_set():
            asked_s = loop.time()
            stop.set()
        elif loop.time() - asked_s > SAME_STOP_WITHIN_S:
            log.warning("stopped_at_once", signal=signal.Signals(number).name)
            _end_at_once(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stop


@asynccontextmanager
async def started(
    app: Canoa, settings: WorkerSettings, stop: asyncio.Event, *, within_s: float
) -> AsyncIterator[Worker]:
    """A running worker. A broker that is not there yet is waited for: services start in any order."""
    async with AsyncExitStack() as stack:
        stack.enter_context(tracing.exporting(app.name))

        def worker(left_s: float) -> AbstractAsyncContextManager[Worker]:
            return app.worker_with(msgspec.structs.replace(settings, link_within_s=left_s))

        yield await entered(worker, stack, stop, within_s=within_s)


async def entered(
    part: Callable[[float], AbstractAsyncContextManager[T]],
    stack: AsyncExitStack,
    stop: asyncio.Event,
    *,
    within_s: float = 30.0,
) -> T:
    """What `part` makes, which is told how long it may wait for a broker; entered on `stack`, and tried again while the
    broker or the store is not there yet. Raises `StoppedEarly` on a signal."""
    entering = asyncio.ensure_future(_entered(part, stack, within_s))
    await _first_of(entering, stop)
    if not entering.done():
        entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)
        raise StoppedEarly
    return await entering


async def _entered(
    part: Callable[[float], AbstractAsyncContextManager[T]], stack: AsyncExitStack, within_s: float
) -> T:
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + within_s
    while True:
        try:
            return await stack.enter_async_context(part(max(FIRST_TRY_S, give_up_s - loop.time())))
        except (BrokerUnreachable, StoreUnreachable) as exc:
            if loop.time() + TRY_AGAIN_AFTER_S > give_up_s:
                raise
            event = "broker_not_there_yet" if isinstance(exc, BrokerUnreachable) else "store_not_there_yet"
            log.warning(event, reason=str(exc))
            await asyncio.sleep(TRY_AGAIN_AFTER_S)


async def _first_of(work: asyncio.Future[Any], stop: asyncio.Event) -> None:
    """Return when `work` is done or `stop` is set."""
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()


@contextmanager
def metrics_served(part: Measured, place: tuple[str, int] | None) -> Iterator[None]:
    """Prometheus metrics at host and port while the block runs."""
    if place is None:
        yield
        return
    from prometheus_client import start_http_server

    host, port = place
    try:
        server, thread = start_http_server(port, addr=host, registry=part.registry)
    except OSError as exc:
        raise listening_error("--metrics", host, port, exc) from exc
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def until_stopped(stop: asyncio.Event, *parts: Part) -> None:
    """Returns on a signal; raises `CannotReceive` when one of the parts is of no more use."""
    failed = [asyncio.ensure_future(part.wait_failed()) for part in parts]
    first = asyncio.ensure_future(asyncio.wait(failed, return_when=asyncio.FIRST_COMPLETED))
    try:
        await _first_of(first, stop)
        for each in failed:
            if each.done():
                await each
    except CanoaError as exc:
        raise CannotReceive(f"it can no longer receive work: {exc}") from exc
    finally:
        first.cancel()
        for each in failed:
            each.cancel()
