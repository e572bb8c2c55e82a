"""Actions that run in processes of their own: those find them here, by name."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from canoa import Backoff, Canoa, Context, DoNotRetry
from canoa.wire import trace

app = Canoa("lab", broker="memory://")


@app.action(cpu=True)
def square(number: int) -> int:
    return number * number


@app.action(cpu=True)
def trace_id() -> str | None:
    context = trace.current()
    return context.trace_id if context else None


@app.action(cpu=True)
def process_id() -> int:
    return os.getpid()


@app.action(cpu=True, retry=1, backoff=Backoff(first_s=0.01, cap_s=0.01))
def fails(text: str) -> None:
    raise LookupError(text)


@app.action(cpu=True, retry=5)
def gives_up() -> None:
    raise DoNotRetry("pointless")


@app.action(cpu=True)
def tells(ctx: Context) -> dict[str, Any]:
    return {**ctx.facts(), "remaining_s": ctx.remaining_s}


@app.action(cpu=True)
def unsendable() -> Any:
    return object()


@app.action(cpu=True)
def large(size: int) -> str:
    return "x" * size


@app.action(cpu=True)
def sleeps(note: str) -> None:
    """Leaves its process id behind, and would run for long."""
    Path(note).write_text(str(os.getpid()))
    time.sleep(60)


@app.action(cpu=True, max_crashes=2)
def dies(note: str, how: str) -> None:
    """Counts its runs, and ends its process."""
    with Path(note).open("a") as file:
        file.write("x")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(4)


@app.action(cpu=True)
def exits() -> None:
    sys.exit(3)


@app.action(cpu=True)
def dies_once(note: str) -> str:
    if not Path(note).exists():
        Path(note).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "recovered"
