"""Answers to registrations: at most so often per node, and always one after the last.

By the published key every node hears of every other, so a thousand nodes would hear a million answers. A worker names a
queue of its own, and is answered there alone; so it can also be told that another one has its id. What guards a worker,
its token and its instance, all others need not hear: it has the token from its own queue, or over HTTP.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from canoa.broker import topology
from canoa.broker.port import HeaderValue, Message, Publication
from canoa.manager.pacing import Pacer
from canoa.urn import action_urn
from canoa.vocabulary import AMQP, MQTT_LINK, TOPICS
from canoa.wire import sapparchi
from canoa.wire.sapparchi import RegistrationAck

if TYPE_CHECKING:
    from canoa.broker.port import Broker, PublishOutcome
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.heartbeat import Tell
    from canoa.store.routed_port import NodeRow
    from canoa.vocabulary import NodeId


class Way(NamedTuple):
    node_id: NodeId
    instance: str = ""  # to whose own queue; empty: by the published key
    is_denied: bool = False
    is_topic: bool = False  # over MQTT
    is_linked: bool = False  # at a broker that speaks nothing else


class Acknowledger:
    def __init__(self, broker: Broker, catalogue: Catalogue) -> None:
        self._broker = broker
        self._catalogue = catalogue
        self._loop = asyncio.get_running_loop()
        self._pacer = Pacer[Way](catalogue.settings.ack_every_s)
        self._timer: asyncio.TimerHandle | None = None
        self.tell_others: Tell | None = None
        """By this, nodes on an MQTT broker of their own hear it."""

    def acknowledge(self, claim: NodeRow, way: str, *, reply_to: str | None) -> None:
        """By the way it came, now or together with what comes until its turn. No other queue than the node's own is
        believed."""
        own = claim.instance if way == AMQP and _is_its_own(reply_to, claim) else ""
        self._want(Way(claim.node_id, own, is_topic=way in TOPICS, is_linked=way == MQTT_LINK))

    def deny(self, claim: NodeRow, way: str, *, reply_to: str | None) -> None:
        """Another node has the id, and lives. Who has no queue of its own is not told: both would hear it."""
        if way == AMQP and _is_its_own(reply_to, claim):
            self._want(Way(claim.node_id, claim.instance, is_denied=True))

    def _want(self, way: Way) -> None:
        if self._pacer.want(way, self._loop.time()):
            self._send(way)
        if self._timer is None:
            self._set_timer()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        next_s = self._pacer.next_s()
        self._timer = None if next_s is None else self._loop.call_at(next_s, self._on_time)

    def _on_time(self) -> None:
        for way in self._pacer.due(self._loop.time()):
            self._send(way)
        self._set_timer()

    def _send(self, way: Way) -> None:
        row = self._catalogue.rows.get(way.node_id)
        if way.is_denied:
            self._broker.post(_denial(way), _ignored)
        elif row is not None:
            welcome = _acknowledgement(row, way)
            if self.tell_others is not None and way.is_linked:
                self.tell_others(topology.NODES_ACK, welcome.message)
            else:
                self._broker.post(welcome, _ignored)


def _is_its_own(reply_to: str | None, claim: NodeRow) -> bool:
    return bool(claim.instance) and reply_to == topology.heartbeat_queue_name(claim.node_id, claim.instance)


def _acknowledgement(row: NodeRow, way: Way) -> Publication:
    token = "" if row.instance and not way.instance else row.token
    ack = RegistrationAck(token=token, node_id=row.node_id, actions=[action_urn(name) for name in row.actions])
    is_named = bool(row.instance) and not way.is_topic
    headers: dict[str, HeaderValue] = {sapparchi.INSTANCE: row.instance} if is_named else {}
    return _publication(ack, headers, way)


def _denial(way: Way) -> Publication:
    ack = RegistrationAck(token="", node_id=way.node_id, actions=[])
    return _publication(ack, {sapparchi.INSTANCE: way.instance, sapparchi.TAKEN: True}, way)


def _publication(ack: RegistrationAck, headers: dict[str, HeaderValue], way: Way) -> Publication:
    body = sapparchi.encode(ack)
    message = Message(body=body, content_type="application/json", headers=headers, persistent=False)
    if way.instance:
        own = topology.heartbeat_queue_name(way.node_id, way.instance)
        return Publication(message=message, key=own, mandatory=False)
    return Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.NODES_ACK, mandatory=False)


def _ignored(_: PublishOutcome) -> None:
    """A node that did not hear it registers again."""
