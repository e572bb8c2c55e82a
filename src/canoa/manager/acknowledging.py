"""Answers to registrations: at most so often per node, and always one after the last."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.manager.pacing import Pacer
from canoa.urn import action_urn
from canoa.vocabulary import NodeId
from canoa.wire import sapparchi
from canoa.wire.sapparchi import RegistrationAck

if TYPE_CHECKING:
    from canoa.broker.port import Broker, PublishOutcome
    from canoa.manager.catalogue import Catalogue
    from canoa.store.routed_port import NodeRow


class Acknowledger:
    def __init__(self, broker: Broker, catalogue: Catalogue) -> None:
        self._broker = broker
        self._catalogue = catalogue
        self._loop = asyncio.get_running_loop()
        self._pacer = Pacer[NodeId](catalogue.settings.ack_every_s)
        self._timer: asyncio.TimerHandle | None = None

    def acknowledge(self, node_id: NodeId) -> None:
        """Now, or together with what comes until its turn."""
        if self._pacer.want(node_id, self._loop.time()):
            self._send(node_id)
        if self._timer is None:
            self._set_timer()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        next_s = self._pacer.next_s()
        self._timer = None if next_s is None else self._loop.call_at(next_s, self._on_time)

    def _on_time(self) -> None:
        for node_id in self._pacer.due(self._loop.time()):
            self._send(node_id)
        self._set_timer()

    def _send(self, node_id: NodeId) -> None:
        row = self._catalogue.rows.get(node_id)
        if row is not None:
            self._broker.post(_acknowledgement(row), _ignored)


def _acknowledgement(row: NodeRow) -> Publication:
    ack = RegistrationAck(token=row.token, node_id=row.node_id, actions=[action_urn(name) for name in row.actions])
    message = Message(body=sapparchi.encode(ack), content_type="application/json", persistent=False)
    return Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.NODES_ACK, mandatory=False)


def _ignored(_: PublishOutcome) -> None:
    """A node that did not hear it registers again."""
