"""The app without asyncio: the same calls, blocking, from any thread.

They run on the app's own event loop: the one it already lives on (a worker's, when a sync action submits more work), or
else one in a background thread, started at the first call.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from canoa.client.loop_thread import LoopThread
from canoa.errors import DeliveryUnknown, WrongUse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator

    from canoa.action import Action, Submitting
    from canoa.app import Canoa
    from canoa.client.handle import Handle

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LOOK_EVERY_S = 0.5
"""How often a waiting thread makes sure that its loop still runs: a loop that stopped never answers."""


class Submittable(Protocol[P, R]):
    """An action or a plan, or `using(...)` of one."""

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Handle[R]]: ...

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...


class SyncHandle(Generic[R]):
    """A `Handle`, blocking."""

    def __init__(self, app: SyncApp, handle: Handle[R]) -> None:
        self._app = app
        self._handle = handle
        self.id = handle.id
        self.action = handle.action

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def is_done(self) -> bool:
        return self._handle.is_done

    def result(self, timeout: float | None = None) -> R:
        return self._app.run(self._handle.result(timeout), self._handle.loop)

    def cancel(self) -> None:
        self._app.run(self._handle.cancel(), self._handle.loop)


class SyncApp:
    """`app.sync`. An action or a plan may also be `action.using(...)`, `plan.using(...)`."""

    def __init__(self, app: Canoa) -> None:
        self._app = app
        self._own: LoopThread | None = None
        self._lock = threading.Lock()

    def submit(self, what: Submittable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        return SyncHandle(self, self.run(what.submit(*args, **kwargs)))

    def call(self, what: Submittable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(what.call(*args, **kwargs))

    def submit_many(
        self, action: Action[..., Any, R] | Submitting[..., R], calls: Iterable[Any]
    ) -> list[SyncHandle[R]]:
        return [SyncHandle(self, handle) for handle in self.run(action.submit_many(calls))]

    @overload
    def map(
        self,
        action: Action[..., Any, R] | Submitting[..., R],
        calls: Iterable[Any],
        *,
        in_flight: int = ...,
        return_errors: Literal[False] = ...,
    ) -> Iterator[R]: ...
    @overload
    def map(
        self,
        action: Action[..., Any, R] | Submitting[..., R],
        calls: Iterable[Any],
        *,
        in_flight: int = ...,
        return_errors: Literal[True],
    ) -> Iterator[R | Exception]: ...
    def map(
        self,
        action: Action[..., Any, R] | Submitting[..., R],
        calls: Iterable[Any],
        *,
        in_flight: int = 1000,
        return_errors: bool = False,
    ) -> Iterator[Any]:
        """Results as they come, like `action.map`."""
        stream: Any = action.map(calls, in_flight=in_flight, return_errors=return_errors)  # type: ignore[call-overload]
        try:
            while True:
                try:
                    yield self.run(_next(stream))
                except StopAsyncIteration:
                    return
        finally:
            self.run(stream.aclose())

    @contextmanager
    def worker(self, *, concurrency: int = 50, drain_s: float = 30.0) -> Iterator[None]:
        """Run the app's actions in the background while the block runs."""
        manager = self._app.worker(concurrency=concurrency, drain_s=drain_s)
        self.run(manager.__aenter__())
        try:
            yield
        finally:
            self.run(manager.__aexit__(None, None, None))

    def close(self) -> None:
        """Close the connections and end the background thread. Done at exit, too."""
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            atexit.unregister(self.close)
            own.stop(self._app.aclose)

    def run(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
        """Run it on the app's loop and wait here. Interrupted (Ctrl-C), it is cancelled there."""
        if _has_running_loop():
            work.close()
            raise WrongUse(
                "app.sync would block the event loop it is called from; use `await action.submit(...)` there"
            )
        loop = loop or self._app.home_loop() or self._background().loop
        if loop.is_closed():
            work.close()
            raise DeliveryUnknown("the app was closed, and with it the event loop this handle belongs to")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return _waited(future, loop)
        except BaseException:
            future.cancel()
            raise

    def _background(self) -> LoopThread:
        with self._lock:
            if self._own is None:
                self._own = LoopThread()
                atexit.register(self.close)
            return self._own


def _waited(future: concurrent.futures.Future[T], loop: asyncio.AbstractEventLoop) -> T:
    while True:
        try:
            return future.result(LOOK_EVERY_S)
        except concurrent.futures.TimeoutError:
            if future.done():  # an action's or our own `TimeoutError`, or the answer came just now
                return future.result()
            if not loop.is_running():
                raise DeliveryUnknown("the app's event loop ended before the answer came") from None


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _next(stream: AsyncIterator[T]) -> T:
    return await anext(stream)
