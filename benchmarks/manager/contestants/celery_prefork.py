"""Celery's worker as it comes, for calls: with the pool that most of its users run. The pool's own contestant takes the
one that is quickest for a call at a time, and runs one task at a time."""

from __future__ import annotations

import sys

from benchmarks.contestant import unmeasured
from benchmarks.pool.contestants.celery import PACKAGES, QUEUE, app, call

__all__ = ["LEAVES_OUT", "PACKAGES", "QUEUE", "SETTINGS", "WORKER", "app", "call", "fill", "gather", "submit"]

SETTINGS = (
    "worker as it comes (-P prefork, a process per core), but for task_acks_late and no remote control; rpc:// results"
)
LEAVES_OUT = dict.fromkeys(("submit", "fill", "gather"), "only calls are compared here")
WORKER = [sys.executable, "-m", "celery", "-A", "benchmarks.pool.contestants.celery", "worker", "-l", "ERROR"]

submit = fill = gather = unmeasured
