"""How a message waits in the broker until it is due: on one rung after the other, each shorter than what is left.

Pure: where to send it next. The rungs' queues are declared in `topology.py`; whoever finds the message at its queue
before its time sends it on to the next rung.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from canoa.broker import topology
from canoa.broker.port import Publication

if TYPE_CHECKING:
    from canoa.broker.port import Message


def rung_before_s(wait_s: float) -> float:
    """The longest rung that does not overshoot; the shortest one where all of them do, so by no more than itself."""
    return topology.RUNGS_S[max(0, bisect_right(topology.RUNGS_S, wait_s) - 1)]


def towards(queue: str, message: Message, wait_s: float) -> Publication:
    """Straight to its queue when there is nothing to wait for, or else on the way to it."""
    exchange = topology.rung_name(rung_before_s(wait_s)) if wait_s > 0 else ""
    return Publication(message=message, exchange=exchange, key=queue)
