"""`canoa worker --reload`: the worker as a child process that is drained and started anew when its code changes.

A child that ends by itself (a syntax error, a missing import) has said why; the next change starts it again. It never
outlives us, even when we are killed: it holds one end of a pipe, its lifeline, and stops when ours is gone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from canoa.cli import output
from canoa.errors import CanoaError
from canoa.extras import needs_extra
from canoa.logs import get_logger

log = get_logger(__name__)

FLAG: Final = "--reload"
LIFELINE: Final = "CANOA_LIFELINE"
"""The environment variable that tells a child its end of the pipe."""

QUIET_MS: Final = 200
"""An editor or a checkout writes several files: the worker starts anew once nothing has changed for this long."""

_PROGRAM: Final = "from canoa.cli import main; main()"


def supervise(target: str) -> int:
    """Run this very command without `--reload` in a child, until told to stop. The exit code is the child's."""
    with needs_extra("canoa worker --reload", "server"):
        import watchfiles  # noqa: F401 - here, so that it is said at once
    arguments = [each for each in sys.argv[1:] if each != FLAG]
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    return asyncio.run(_Supervisor(command, app_folder(target)).run())


def app_folder(target: str) -> Path:
    """Where the app's code is: the current folder, unless its module lies elsewhere."""
    here, top = Path.cwd(), target.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(top, [str(here), *sys.path]) if top else None
    places = [*(spec.submodule_search_locations or []), spec.origin or ""] if spec else []
    if not places or not places[0] or Path(places[0]).is_relative_to(here):
        return here
    place = Path(places[0])
    return place if place.is_dir() else place.parent


def follow_lifeline() -> None:
    """In the child: stop like on SIGTERM when whoever started us is gone, also while the app is still imported."""
    descriptor = os.environ.pop(LIFELINE, "")
    if descriptor:
        threading.Thread(target=_stop_at_its_end, args=(int(descriptor),), name="lifeline", daemon=True).start()


def _stop_at_its_end(descriptor: int) -> None:
    with suppress(OSError):
        os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGTERM)


class _Supervisor:
    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._folder = folder
        self._child: asyncio.subprocess.Process | None = None
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._lifeline, self._ours = os.pipe()

    async def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        watching = asyncio.create_task(self._watch(), name="reload.watch")
        try:
            return await self._keep_running(watching)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _keep_running(self, watching: asyncio.Task[None]) -> int:
        is_first = True
        while True:
            child = await self._start()
            await self._first_of(watching, child.wait(), self._changed.wait(), self._stopped.wait())
            if child.returncode is None and not self._stopped.is_set():
                child.send_signal(signal.SIGTERM)
            code = await child.wait()
            if self._stopped.is_set():
                return _exit_code(code)
            if not self._changed.is_set():
                if code == 0 or (is_first and code == output.WRONG_USE):
                    return code  # somebody stopped it, or no change of the code will help
                log.error("worker_ended", code=code, remedy="change the code to start it again; Ctrl-C ends")
                await self._first_of(watching, self._changed.wait(), self._stopped.wait())
                if self._stopped.is_set():
                    return 0
            is_first = False

    async def _start(self) -> asyncio.subprocess.Process:
        self._changed.clear()
        environment = {**os.environ, LIFELINE: str(self._lifeline)}
        child = await asyncio.create_subprocess_exec(*self._command, env=environment, pass_fds=[self._lifeline])
        self._child = child
        if self._stopped.is_set():  # while it was being born, and could not be told
            child.send_signal(signal.SIGTERM)
        return child

    def _on_signal(self, number: int) -> None:
        """Passed on, each of them: the child knows what a second one means."""
        self._stopped.set()
        if self._child is not None and self._child.returncode is None:
            self._child.send_signal(number)

    async def _watch(self) -> None:
        from watchfiles import PythonFilter, awatch

        log.info("watching_code", folder=str(self._folder))
        try:
            async for changes in awatch(self._folder, watch_filter=PythonFilter(), step=QUIET_MS):
                log.info("code_changed", files=sorted({Path(path).name for _, path in changes})[:5])
                self._changed.set()
        except OSError as exc:
            raise CanoaError(
                f"cannot watch {self._folder}: {exc}; start in a smaller folder, or raise fs.inotify.max_user_watches"
            ) from exc

    async def _first_of(self, watching: asyncio.Task[None], *waits: Any) -> None:
        """Return when one is done. A watch that failed is an error: we would follow nothing."""
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait([watching, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        if watching.done():
            watching.result()


def _exit_code(code: int) -> int:
    """Of a child that was told to stop: one that the signal met before it could listen stopped just as well."""
    return 0 if code in (-signal.SIGTERM, -signal.SIGINT) else 128 - code if code < 0 else code
