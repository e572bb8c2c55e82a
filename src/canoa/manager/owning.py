"""Whether a registration may have the id that it claims: an id belongs to one live node. Pure: rows and looks in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from canoa.vocabulary import AMQP, HTTP, TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.store.routed_port import NodeRow

NEW_ADDRESS_AFTER: Final = 2 / 3
"""Of the time after which a node is silent, without a registration from its old address: with the defaults, two of them
did not come."""


class Ages(NamedTuple):
    """Of the one that has the id, in seconds."""

    heard_s: float  # since any sign of life
    registered_s: float  # since it registered: an answer does not say from where it comes


def is_doubtful(known: NodeRow | None, claim: NodeRow, *, ages: Ages, silence_s: float) -> bool:
    """Whether the queue must be looked at before the claim is believed: somebody else seems to have the id and live.

    Nobody doubts the same instance, the place of one that left or is silent, or, of nodes that say no instance, one at
    the same host: it was started again. A new host is believed before the node would be silent: its address changed.
    """
    if known is None or not known.actions or ages.heard_s > silence_s:
        return False
    if known.instance or claim.instance:
        return known.instance != claim.instance
    return _host(known.endpoint) != _host(claim.endpoint) and ages.registered_s <= silence_s * NEW_ADDRESS_AFTER


def may_have(known: NodeRow, claim: NodeRow, seen: Mapping[str, int | None]) -> bool:
    """Of a doubtful claim. `seen`: how many take what is sent to the known one, by those of its open ways that can be
    looked at; None: there is no such queue.

    A worker listens before it registers. So two consumers are two workers, and the first one stays; with one, the first
    is gone: it was killed and started again. Unless the newcomer has no queue: then any consumer is the first one's. A
    killed program's consumer goes with its connection, a lost machine's after two heartbeats: its successor gets in
    with one of its next registrations. A node of another make may listen elsewhere: it does not get a worker's id while
    anybody listens for that, and of two such nodes the first one stays unless its queue is there and deserted. Where
    there is no queue to look at, the address is asked: it answers for the one that was first. Of a device at a topic it
    says nothing: many name one at which they never listen.
    """
    consumers = seen.get(AMQP)
    has_no_queue = AMQP not in seen and TOPICS.isdisjoint(known.open_ways)
    if HTTP in seen and consumers is None and (known.instance or has_no_queue):
        return not seen[HTTP] or claim.endpoint == known.endpoint
    if known.instance and claim.instance:
        return consumers is None or consumers <= (AMQP in claim.open_ways)
    return consumers == 0 or (consumers is None and bool(known.instance))


def may_leave(known: NodeRow, claim: NodeRow) -> bool:
    """A late farewell of an earlier instance is not the present one's."""
    if known.instance or claim.instance:
        return known.instance == claim.instance
    return _host(known.endpoint) == _host(claim.endpoint)


def _host(endpoint: str) -> str:
    try:
        return urlsplit(endpoint).hostname or endpoint
    except ValueError:
        return endpoint
