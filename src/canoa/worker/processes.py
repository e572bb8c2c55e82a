"""`cpu=True` actions: child processes that can be killed.

Requests and answers are msgpack over a pipe: nothing is pickled but the start of the child itself. A child decodes the
arguments and encodes the result, so that the parent's event loop only moves bytes.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from canoa import log_lines, telemetry
from canoa.context import Context
from canoa.errors import ArgumentsRefused, DoNotRetry, Undecodable
from canoa.wire import trace
from canoa.wire.codec import ContentType, Unencodable

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from canoa.context import Report


class Request(msgspec.Struct, frozen=True, kw_only=True):
    module: str
    qualname: str
    body: bytes
    content_type: str | None
    context: dict[str, Any]
    trace: dict[str, Any]


class Reported(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """Progress, on the way to the answer."""

    fraction: float | None
    text: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """`error` empty: `body` is the encoded result."""

    body: bytes = b""
    error: str = ""
    error_type: str = ""
    traceback: str = ""
    is_refused: bool = False
    is_retryable: bool = True


class ChildDied(Exception):
    """The child process ended in the middle of an action: killed, out of memory, or a fault in native code."""


_requests = msgspec.msgpack.Decoder(Request)
_answers = msgspec.msgpack.Decoder(Reported | Answer)
_encode = msgspec.msgpack.Encoder().encode


class ProcessPool:
    """At most `size` children, started when first needed and kept."""

    def __init__(self, size: int) -> None:
        self._start = multiprocessing.get_context("spawn")
        self._idle: deque[_Child] = deque()
        self._all: set[_Child] = set()
        self._size = size
        self._is_closed = False
        self._slots = asyncio.Semaphore(size)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="canoa-cpu")

    async def run(self, request: Request, *, on_report: Report) -> Answer:
        """Raises `ChildDied`. Cancelling it kills the child in mid-action. `on_report` is called from a thread."""
        loop = asyncio.get_running_loop()
        async with self._slots:
            child = self._kept() or await self._started()
            try:
                answer = await loop.run_in_executor(self._threads, child.ask, _encode(request), on_report)
            except asyncio.CancelledError:
                self._discard(child)
                raise
            except (EOFError, OSError) as exc:
                code = child.exit_code()
                self._discard(child)
                raise ChildDied(f"the action's process ended with code {code}") from exc
            self._idle.append(child)
            return answer

    async def _started(self) -> _Child:
        """Starting takes longer than some time limits: whoever gives up leaves the child to the next one."""
        starting = asyncio.get_running_loop().run_in_executor(self._threads, self._new_child)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._keep)
            raise

    def _keep(self, starting: asyncio.Future[_Child]) -> None:
        if starting.cancelled() or starting.exception() is not None:
            return
        if self._is_closed or len(self._all) > self._size:
            self._discard(starting.result())
        else:
            self._idle.append(starting.result())

    def _new_child(self) -> _Child:
        child = _Child(self._start)
        self._all.add(child)
        return child

    def _kept(self) -> _Child | None:
        """One that waits for work and still lives: a death while idle is no fault of the next action."""
        while self._idle:
            child = self._idle.popleft()
            if child.is_alive:
                return child
            self._discard(child)
        return None

    def _discard(self, child: _Child) -> None:
        self._all.discard(child)
        child.kill()

    def close(self) -> None:
        self._is_closed = True
        for child in list(self._all):
            self._discard(child)
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Child:
    def __init__(self, start: multiprocessing.context.SpawnContext) -> None:
        self._pipe, far_end = start.Pipe()
        self._process = start.Process(
            target=child_main, args=(far_end, log_lines.in_children), name="canoa-cpu", daemon=True
        )
        self._process.start()
        far_end.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def ask(self, request: bytes, on_report: Report) -> Answer:
        """Blocks; raises EOFError when the child ends first."""
        self._pipe.send_bytes(request)
        while True:
            told = _answers.decode(self._pipe.recv_bytes())
            if isinstance(told, Answer):
                return told
            on_report(told.fraction, told.text)

    def exit_code(self) -> int | None:
        self._process.join(1.0)
        return self._process.exitcode

    def kill(self) -> None:
        """The pipe is closed once nobody reads it any more: whoever does hears of the end."""
        self._process.kill()
        self._process.join(1.0)


def child_main(pipe: Connection, set_up_logs: Callable[[], None] | None) -> None:
    """The child's life: one request after the other, until the parent is gone."""
    if set_up_logs is not None:
        set_up_logs()
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the whole group; the parent decides what they mean
        signal.signal(number, _leave_to_parent)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            request = _requests.decode(pipe.recv_bytes())
            pipe.send_bytes(_encode(_perform(request, partial(_report, pipe))))
        except (EOFError, OSError):
            return


def _leave_to_parent(_number: int, _frame: object) -> None:
    """A handler, and not SIG_IGN, which programs started by the action would inherit."""


def _end_with_parent() -> None:
    """A killed parent closes no action: without this its children would work on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _report(pipe: Connection, fraction: float | None, text: str) -> None:
    pipe.send_bytes(_encode(Reported(fraction=fraction, text=text)))


def _perform(request: Request, report: Report) -> Answer:
    try:
        action, args, kwargs = _prepared(request, report)
    except (ArgumentsRefused, Undecodable) as exc:
        return _refused(exc)
    except Exception as exc:
        return _raised(exc)
    trace.received.set(request.trace)
    telemetry.join(request.trace)
    try:
        value = action.function(*args, **kwargs)
    except (Exception, SystemExit) as exc:  # an action's `sys.exit()` must not end its process
        return _raised(exc)
    try:
        return Answer(body=action.signature.result.encode(value, ContentType.JSON))
    except Unencodable as exc:
        return _refused(exc)


def _prepared(request: Request, report: Report) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    action = _find(request.module, request.qualname)
    args, kwargs = action.signature.call_form(action.signature.decode(request.body, request.content_type))
    context = Context(**request.context, report=report)
    return action, (context, *args) if action.signature.takes_context else args, kwargs


def _refused(exc: Exception) -> Answer:
    return Answer(error=str(exc), error_type=type(exc).__name__, is_refused=True)


def _raised(exc: BaseException) -> Answer:
    return Answer(
        error=str(exc),
        error_type=type(exc).__name__,
        traceback="".join(traceback.format_exception(exc)),
        is_retryable=not isinstance(exc, DoNotRetry),
    )


def _find(module: str, qualname: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found
