"""`canoa` under a wall clock that is wrong by what a file says, in seconds, and changes as the file does.

python -m tests.acceptance.shifted_clock <file> <arguments of `canoa`>
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from canoa.cli import main


def shift(said: Path) -> None:
    """Clocks that only count how long something takes stay as they are, like those of the system."""
    right_s, right_ns = time.time, time.time_ns
    time.time = lambda: right_s() + int(said.read_text())
    time.time_ns = lambda: right_ns() + int(said.read_text()) * 1_000_000_000


if __name__ == "__main__":
    shift(Path(sys.argv.pop(1)))
    main()
