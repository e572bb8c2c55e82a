"""Who takes part: those who keep results in the same database, and the fastest that keep them elsewhere."""

from __future__ import annotations

from benchmarks.rows import OURS

MODULES = {
    OURS: f"{__name__}.canoa",
    "celery": f"{__name__}.celery",
    "taskiq": "benchmarks.pool.contestants.taskiq",
}
"""Taskiq keeps results in Redis, so it plays as it does in the pool."""
