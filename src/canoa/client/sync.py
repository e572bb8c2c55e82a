"""The app without asyncio: the same calls, blocking, from any thread.

They run on the app's own event loop: the one it already lives on (a worker's, when a sync action submits more work), or
else one in a background thread, started at the first call.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from canoa.errors import WrongUse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator

    from canoa.action import Action, Submitting
    from canoa.app import Canoa
    from canoa.client.handle import Handle

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


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
        return self._app.run(self._handle.result(timeout))

    def cancel(self) -> None:
        self._app.run(self._handle.cancel())


class SyncApp:
    """`app.sync`. `action` may also be `action.using(...)`."""

    def __init__(self, app: Canoa) -> None:
        self._app = app
        self._own: _LoopThread | None = None
        self._lock = threading.Lock()

    def submit(
        self, action: Action[P, Any, R] | Submitting[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncHandle[R]:
        return SyncHandle(self, self.run(action.submit(*args, **kwargs)))

    def call(self, action: Action[P, Any, R] | Submitting[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(action.call(*args, **kwargs))

    def submit_many(
        self, action: Action[..., Any, R] | Submitting[..., R], calls: Iterable[Any]
    ) -> list[SyncHandle[R]]:
        return [SyncHandle(self, handle) for handle in self.run(action.submit_many(calls))]

    def map(self, action: Action[..., Any, R] | Submitting[..., R], calls: Iterable[Any]) -> Iterator[R]:
        """Results as they come; the first failure is raised."""
        stream: AsyncIterator[R] = action.map(calls)
        while True:
            try:
                yield self.run(_next(stream))
            except StopAsyncIteration:
                return

    @contextmanager
    def worker(self, *, concurrency: int = 50) -> Iterator[None]:
        """Run the app's actions in the background while the block runs."""
        manager = self._app.worker(concurrency=concurrency)
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
            own.stop(self._app.aclose)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self._app.home_loop() or self._background().loop
        if _running_loop() is not None:
            work.close()
            raise WrongUse(
                "app.sync would block the event loop it is called from; use `await action.submit(...)` there"
            )
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def _background(self) -> _LoopThread:
        with self._lock:
            if self._own is None:
                self._own = _LoopThread()
                atexit.register(self.close)
            return self._own


class _LoopThread:
    def __init__(self) -> None:
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="canoa-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def stop(self, last_words: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(last_words(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _next(stream: AsyncIterator[T]) -> T:
    return await anext(stream)
