"""Everything in one process, called by the Python client in it; prints the seconds that `count` actions took.

`python -m benchmarks.keep.embedded <count>`: memory broker, SQLite in a folder of its own, a worker; each task is
stored before it runs, and so is its result before the caller hears.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.keep.small_app import app, resize
from canoa.recorder.hosting import hosting

WARM_UP = 500


async def called(count: int, store_url: str) -> float:
    async with hosting(app, store_url), app.worker(), app:
        await _call(WARM_UP)
        began = time.perf_counter()
        await _call(count)
        return time.perf_counter() - began


async def _call(count: int) -> None:
    async for _ in resize.using(result="keep").map([resize.args("a.png", width=80)] * count):
        pass


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        seconds = uvloop.run(called(int(sys.argv[1]), f"sqlite:///{Path(folder, 'canoa.db')}"))
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
