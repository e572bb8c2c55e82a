"""The `canoa` command: one file per command here, and the only place that wires parts together.

Here is its first moment only: a stop is heard also while the rest is still imported, which takes a second, and several
on a busy machine. By default a signal would end us as if we had failed, and the first process of a container would not
hear SIGTERM at all. From the event loop on, `serving.py` says what signals mean; the commands are in `program.py`.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

SERVING: Final = frozenset({"up", "worker", "manager", "recorder"})
"""The commands that run until they are stopped: to end by a signal is to end well."""


def main() -> None:
    if SERVING.intersection(sys.argv[1:2]):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
    from canoa.cli.program import program  # only now: this is what takes the time

    program(sys.argv[1:])()


def _leave(_number: int, _frame: FrameType | None) -> None:
    # Not by an exception: in the middle of an import it may land where Python drops it. There is nothing to drain yet.
    os._exit(0)
