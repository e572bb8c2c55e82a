"""Several ways of one node: what it says by each of them is put together, and what closes one closes no other. Pure.

A node says the same by every way, under one instance. Only at which broker its topic is, nobody can tell but by
hearing it there. Over MQTT 3.1.1 it cannot even name its instance: such a *bare* registration is taken for a node's own
if that has a topic and offers the very same. The other way round, where the bare one was first, whoever names an
instance must be on a broker: over HTTP anybody could repeat a device's words, and have its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from canoa.manager.claims import reached
from canoa.vocabulary import HTTP, MQTT_UNHEARD, TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canoa.store.routed_port import NodeRow


def joined(known: NodeRow | None, claim: NodeRow, *, by: Iterable[str]) -> NodeRow:
    """The claim, with what is known by other ways of the same process. `by`: the ways that it came by."""
    if known is None or not claim.actions:
        return claim
    if claim.instance and known.instance in (claim.instance, ""):
        is_one = bool(known.instance) or _adopts(claim, known, by)
        return _heard_at(claim, known) if is_one else claim
    return _opened_by(known, claim) if is_bare_side(known, claim) else claim


def is_one_process(known: NodeRow, claim: NodeRow, *, by: Iterable[str]) -> bool:
    """Though only one of them names its instance."""
    return is_bare_side(known, claim) or _adopts(claim, known, by)


def closes(known: NodeRow, farewell: NodeRow) -> tuple[str, ...]:
    """The ways that it is about; none: the whole node. An MQTT broker that says it for a node says it of its topic."""
    if known.instance == farewell.instance:
        return farewell.closed
    bare = farewell.instance == "" and len(known.all_ways) > 1 and _is_like(known, farewell)
    return tuple(way for way in farewell.all_ways if bare and way in TOPICS and way in known.all_ways)


def without(known: NodeRow, ways: tuple[str, ...]) -> NodeRow:
    """With these closed, too."""
    return reached(known, known.all_ways, closed=frozenset(known.closed).union(ways))


def _heard_at(claim: NodeRow, known: NodeRow) -> NodeRow:
    """Where it was heard before, if this time it was not heard there. Of its links the last one counts: one way's word
    may be older than another's that came first."""
    topic = next((way for way in known.all_ways if way in TOPICS), None)
    if claim.link < known.link:
        claim = reached(msgspec.structs.replace(claim, link=known.link), claim.all_ways, closed=claim.closed)
    if topic is None or MQTT_UNHEARD not in claim.all_ways:
        return claim
    ways, closed = ([topic if way == MQTT_UNHEARD else way for way in each] for each in (claim.ways, claim.closed))
    return reached(claim, ways, closed=closed)


def _opened_by(known: NodeRow, bare: NodeRow) -> NodeRow:
    """What a bare registration says is only that the topic is there."""
    topic = bare.protocol
    ways = [topic if way == MQTT_UNHEARD else way for way in known.all_ways]
    return reached(known, ways, closed=frozenset(known.closed) - {topic, MQTT_UNHEARD})


def _adopts(whole: NodeRow, bare: NodeRow, by: Iterable[str]) -> bool:
    """By a broker: through the node's own queue there, or at that very topic."""
    return any(way != HTTP for way in by) and is_bare_side(whole, bare)


def is_bare_side(whole: NodeRow, bare: NodeRow) -> bool:
    """As far as their words say."""
    has_topic = bare.protocol in TOPICS and not {bare.protocol, MQTT_UNHEARD}.isdisjoint(whole.all_ways)
    is_bare = bool(whole.instance) and not bare.instance
    return is_bare and has_topic and whole.actions == bare.actions and _is_like(whole, bare)


def _is_like(one: NodeRow, other: NodeRow) -> bool:
    return (one.type, one.layer, one.endpoint) == (other.type, other.layer, other.endpoint)
