"""An event loop in a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class LoopThread:
    """Runs from its creation until `stop`; a daemon, so that it keeps no program from ending."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        is_running = threading.Event()
        self.loop.call_soon(is_running.set)
        self._thread = threading.Thread(target=self._run, name="canoa-sync", daemon=True)
        self._thread.start()
        is_running.wait()  # whoever asks whether it runs must not be told no because it has just been started

    def _run(self) -> None:
        try:
            self.loop.run_forever()
            _cancel_all(self.loop)
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def stop(self, last_words: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`last_words` run there before the end; whatever still runs after them is cancelled."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(last_words(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
