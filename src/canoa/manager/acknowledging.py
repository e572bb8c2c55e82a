"""Answers to registrations: at most so often per node, and always one after the last.

By the published key every node hears of every other, so a thousand nodes would hear a million answers. A worker names a
queue of its own, and is answered there alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.manager.pacing import Pacer
from canoa.urn import action_urn
from canoa.wire import sapparchi
from canoa.wire.sapparchi import RegistrationAck

if TYPE_CHECKING:
    from canoa.broker.port import Broker, PublishOutcome
    from canoa.manager.catalogue import Catalogue
    from canoa.store.routed_port import NodeRow
    from canoa.vocabulary import NodeId


class Way(NamedTuple):
    node_id: NodeId
    is_private: bool  # to its own queue


class Acknowledger:
    def __init__(self, broker: Broker, catalogue: Catalogue) -> None:
        self._broker = broker
        self._catalogue = catalogue
        self._loop = asyncio.get_running_loop()
        self._pacer = Pacer[Way](catalogue.settings.ack_every_s)
        self._timer: asyncio.TimerHandle | None = None

    def acknowledge(self, node_id: NodeId, *, reply_to: str | None) -> None:
        """Now, or together with what comes until its turn. No other queue than the node's own is believed."""
        way = Way(node_id, reply_to == topology.heartbeat_queue_name(node_id))
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
        if row is not None:
            self._broker.post(_acknowledgement(row, is_private=way.is_private), _ignored)


def _acknowledgement(row: NodeRow, *, is_private: bool) -> Publication:
    ack = RegistrationAck(token=row.token, node_id=row.node_id, actions=[action_urn(name) for name in row.actions])
    message = Message(body=sapparchi.encode(ack), content_type="application/json", persistent=False)
    if is_private:
        return Publication(message=message, key=topology.heartbeat_queue_name(row.node_id), mandatory=False)
    return Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.NODES_ACK, mandatory=False)


def _ignored(_: PublishOutcome) -> None:
    """A node that did not hear it registers again."""
