"""Dramatiq with what a caller of ours gets: the broker has said that it has the task. Results over Redis."""

from __future__ import annotations

from benchmarks.contestant import unmeasured
from benchmarks.pool.contestants import dramatiq
from benchmarks.pool.contestants.dramatiq import PACKAGES as PACKAGES
from benchmarks.pool.contestants.dramatiq import QUEUE as QUEUE
from benchmarks.pool.contestants.dramatiq import WORKER as WORKER
from benchmarks.pool.contestants.dramatiq import call as call
from benchmarks.pool.contestants.dramatiq import gather as gather

SETTINGS = "as dramatiq, with confirm_delivery also where results are wanted"
LEAVES_OUT = dict.fromkeys(("submit", "fill"), "the same as dramatiq's")

submit = fill = unmeasured

dramatiq.broker.confirm_delivery = True
