"""`canoa` in a hurry: the same rules, with shorter times where nothing but waiting tells anything.

    python -m tests.acceptance.hasty <arguments of `canoa`>

Tests of what happens then need not wait as long as people do. How long these times really are is not tried with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from canoa.cli import main

# In this order: who takes a time over from another module does so when it is imported. Answers may still take two
# seconds, since the machine may be busy, and silence is longer than the five seconds between heartbeats.
TIMES: dict[str, dict[str, float]] = {
    "canoa.manager.timers": {"NEAR_MS": 500, "LEASE_S": 3.0, "ASK_EVERY_S": 1.0},
    "canoa.manager.osmosis": {"HOLD_MS": 3_000},
    "canoa.execution.proof": {"EVERY_S": 3.0, "AGAIN_S": 1.0, "ANSWER_WITHIN_S": 2.0},
    "canoa.worker.proving": {"ANSWER_WITHIN_S": 2.0},
    "canoa.worker.registration": {"SILENCE_S": 7.0},
    "canoa.worker.node": {"PREDECESSOR_WITHIN_S": 4.0},
}


def hurry() -> None:
    for name, times in TIMES.items():
        module = vars(import_module(name))
        assert times.keys() <= module.keys(), f"{name} has other times by now"
        module.update(times)
    _prove_sooner()


def _prove_sooner() -> None:
    """A worker tries itself after three seconds of quiet instead of thirty."""
    from canoa.worker import joining
    from canoa.worker.proving import OwnProof

    class Hasty(OwnProof):
        def __init__(self, *args: Any, quiet_s: float, **options: Any) -> None:
            super().__init__(*args, quiet_s=quiet_s / 10, **options)

    vars(joining)["OwnProof"] = Hasty


if __name__ == "__main__":
    hurry()
    main()
