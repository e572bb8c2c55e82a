"""Which uplinks a worker has, by its settings. What each needs is imported when it is used: they are extras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.vocabulary import AMQP, HTTP, MQTT
from canoa.worker.unicast import ENVELOPE_BYTES

if TYPE_CHECKING:
    from canoa.settings import Settings
    from canoa.worker.node import Node
    from canoa.worker.settings import WorkerSettings
    from canoa.worker.uplinks.address import Address
    from canoa.worker.uplinks.port import Uplink


def ways(address: Address | None, settings: WorkerSettings, *, is_memory: bool) -> tuple[str, ...]:
    """By which managers reach it, said where they do not see that by how they hear of it."""
    has = {AMQP: not is_memory, MQTT: bool(settings.mqtt), HTTP: address is not None}
    found = tuple(way for way, has_it in has.items() if has_it)
    return found if len(found) > 1 or address is not None else ()


def new_uplinks(node: Node, address: Address | None, settings: WorkerSettings, shared: Settings) -> list[Uplink]:
    """The preferred one first. `address`: where it listens for HTTP. `shared`: by all programs of the app."""
    is_alone = address is None and shared.is_memory
    by_mqtt = [_by_mqtt(node, settings, shared, is_alone=is_alone)] if settings.mqtt else []
    return [*by_mqtt, *([] if address is None else [_by_http(node, address, settings, shared)])]


def _by_http(node: Node, address: Address, settings: WorkerSettings, shared: Settings) -> Uplink:
    from canoa.worker.uplinks.http import HttpUplink

    return HttpUplink(
        address.listener,
        settings.managers,
        node_id=node.id,
        said=node.said,
        max_body_bytes=2 * shared.max_payload_bytes + ENVELOPE_BYTES,
        api_token=settings.node_token,
    )


def _by_mqtt(node: Node, settings: WorkerSettings, shared: Settings, *, is_alone: bool) -> Uplink:
    from canoa.broker.mqtt_address import mqtt_address
    from canoa.worker.uplinks.mqtt import MqttUplink

    address = mqtt_address(settings.mqtt, shared)
    return MqttUplink(
        address,
        node_id=node.id,
        said=node.said,
        is_lasting=bool(settings.node_id),
        is_alone=is_alone,
        on_link=node.count_link,
        on_time=node.heard_time,
        link_within_s=settings.link_within_s,
    )
