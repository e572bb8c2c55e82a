"""What the processes of one group hold and have used, from `/proc/<pid>/stat`; the fields are in proc(5)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MIB = 1024 * 1024
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    cpu_s: float
    rss_mib: float


def usage(group: int) -> Usage:
    cpu_ticks = rss_pages = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended while we looked
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                cpu_ticks += int(fields[11]) + int(fields[12])
                rss_pages += int(fields[21])
    return Usage(cpu_ticks / TICKS_PER_S, rss_pages * os.sysconf("SC_PAGE_SIZE") / MIB)
