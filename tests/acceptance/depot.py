"""An app for the acceptance tests: actions that a test can hold up, and see from outside."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from pathlib import Path

from canoa import Canoa, Context

app = Canoa("depot")
not_an_app = "a string"


@app.action()
async def echo(text: str, *, times: int = 1) -> str:
    return text * times


@app.action()
async def fail(reason: str) -> str:
    raise ValueError(reason)


@app.action(timeout=None)
async def hold(folder: str) -> str:
    """Says that it runs by a file `started`, and ends once there is a file `release`."""
    (Path(folder) / "started").touch()
    while not (Path(folder) / "release").exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.02)
    return "held"


@app.action(timeout=None)
def stick(folder: str) -> None:
    """Holds its thread for ever."""
    (Path(folder) / "started").touch()
    threading.Event().wait()


@app.action(cpu=True)
def count(ctx: Context, text: str) -> int:
    """Logs in a process of its own."""
    ctx.logger.debug("counting", text=text)
    ctx.logger.info("counted", letters=len(text))
    logging.getLogger("depot").warning("by other means")
    return len(text)


@app.action(timeout=None)
async def paint(ctx: Context, folder: str) -> str:
    """Says how far it is, then ends once there is a file `release`."""
    ctx.progress(0.4, "first coat")
    return await hold(folder)


@app.action()
async def late(folder: str) -> float:
    """When it ran."""
    (Path(folder) / "ran").touch()
    return time.time()


@app.action()
async def fragile(folder: str) -> str:
    """Fails until there is a file `mended`."""
    if not (Path(folder) / "mended").exists():
        raise ValueError("no glue")
    return "whole"


@app.action()
async def die() -> None:
    """Ends its whole process, as a fault in native code would."""
    os.kill(os.getpid(), signal.SIGKILL)
