"""Who takes part: one module each, all with the same names in it (`benchmarks/contestant.py`).

To add another one, write such a module and name it in `RIVALS`.
"""

from __future__ import annotations

from benchmarks.rows import LIMIT as LIMIT
from benchmarks.rows import OURS as OURS

RIVALS = ("celery", "dramatiq", "dramatiq_confirmed", "taskiq", "faststream")


def module(name: str) -> str:
    return f"{__name__}.{name}"
