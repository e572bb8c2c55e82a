"""What a contestant is: a module with the names of `Contestant`, and what it says about itself.

Its functions run in a process of their own (`client.py`), and its worker is started by the task system's own command,
so nobody shares an interpreter with the harness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Contestant(Protocol):
    """What a contestant's module holds. Payloads are text of the wanted size; queues are classic and durable, messages
    persistent, workers acknowledge one by one after the work."""

    PACKAGES: Sequence[str]
    """Distributions whose versions the report names."""

    QUEUE: str
    """Where `submit` and `fill` put their messages."""

    SETTINGS: str
    """What differs from the defaults, for the report."""

    LEAVES_OUT: Mapping[str, str]
    """Roles it cannot play, and why."""

    WORKER: Sequence[str]
    """The command of a worker of one process."""

    def submit(self, count: int, payload: str) -> float:
        """Publish with confirms, as pipelined as it can; seconds until the last one was confirmed."""

    def fill(self, count: int, payload: str) -> None:
        """Publish the same messages the fastest way there is, confirmed or not. Nobody looks at the clock."""

    def gather(self, count: int, payload: str) -> float:
        """Submit, then wait for all results; seconds from the first submit to the last result."""

    def call(self, count: int, payload: str) -> list[float]:
        """Submit one and wait for its result, `count` times; seconds each."""


class Planner(Contestant, Protocol):
    """One that also runs plans: each step returns its payload, every result is kept."""

    def chain(self, count: int, payload: str) -> float:
        """Submit plans of three steps, one after the other; seconds until all their results are there."""

    def fanout(self, count: int, payload: str) -> float:
        """The same with one step, then ten side by side, then one that gets what the ten gave."""


class Description(msgspec.Struct, frozen=True):
    """What a contestant says about itself."""

    queue: str
    settings: str
    leaves_out: dict[str, str]
    worker: list[str]
    versions: dict[str, str]


def unmeasured(count: int, payload: str) -> NoReturn:
    """Stands for a role that `LEAVES_OUT` names."""
    raise SystemExit("this contestant does not play this role, as its LEAVES_OUT says")
