"""`canoa recorder` that kills itself at a chosen moment, with SIGKILL: the moments that luck alone rarely hits.

python -m tests.acceptance.doomed_recorder <moment> <arguments of `canoa recorder`>
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from canoa.broker import topology
from canoa.broker.amqp.consumer import AmqpDelivery
from canoa.broker.port import Settlement
from canoa.cli import main
from canoa.store.port import Accept, End
from canoa.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMITTED: Final[dict[str, type[Any]]] = {"accepted-not-published": Accept, "recorded-not-told": End}
"""Dies once a change of this kind is on disk, before anybody hears of it."""

SETTLED: Final = {"published-not-acknowledged": topology.SUBMIT, "told-not-acknowledged": topology.RESULTS}
"""Dies instead of acknowledging a message of this queue."""

MOMENTS: Final = (*COMMITTED, *SETTLED)


def doom(moment: str) -> None:
    if moment in COMMITTED:
        _die_behind_commit(COMMITTED[moment])
    else:
        _die_before_settling(SETTLED[moment])


def _die_behind_commit(kind: type[Any]) -> None:
    apply = SqliteStore.apply

    async def applied(self: SqliteStore, changes: Sequence[Any]) -> list[Any]:
        answers = await apply(self, changes)
        if any(isinstance(change, kind) for change in changes):
            _die()
        return answers

    SqliteStore.apply = applied  # type: ignore[method-assign]


def _die_before_settling(queue: str) -> None:
    settle = AmqpDelivery.settle

    def settled(self: AmqpDelivery, how: Settlement = Settlement.ACK) -> bool:
        if self.key == queue:
            _die()
        return settle(self, how)

    AmqpDelivery.settle = settled  # type: ignore[method-assign]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    doom(sys.argv.pop(1))
    sys.argv.insert(1, "recorder")
    main()
