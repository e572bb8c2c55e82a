"""What each role may do on the broker: the fewest rights with which it works, as RabbitMQ counts them.

Names of exchanges and queues with `*` for any text; `amq.default` is the default exchange. To bind is to write to the
queue and to read from the exchange; a queue that dead-letters is read, and its target written to.
"""

from __future__ import annotations

import enum
import re
import shlex
from typing import TYPE_CHECKING

import msgspec

from canoa.broker import topology

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORDERS_APP = "canoa"
"""Recorders offer what they know as actions of this app."""


class Role(enum.StrEnum):
    CLIENT = "client"
    WORKER = "worker"
    RECORDER = "recorder"
    MANAGER = "manager"
    DEVICE = "device"  # on RabbitMQ's MQTT plugin: a node, or a client


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """Three regular expressions, or what three of them must match."""

    configure: tuple[str, ...]
    write: tuple[str, ...]
    read: tuple[str, ...]

    def __or__(self, other: Rights) -> Rights:
        return Rights(
            configure=_joined(self.configure, other.configure),
            write=_joined(self.write, other.write),
            read=_joined(self.read, other.read),
        )


_CLIENT = Rights(
    configure=("canoa.reply.*", "canoa.mark.*", "canoa.probe.*", f"{topology.EVENTS}.*"),
    write=("amq.default", topology.CANCEL, f"{topology.EVENTS}.*", "canoa.retry.*"),  # delayed tasks wait on rungs
    read=("canoa.reply.*", "canoa.probe.*", topology.EVENTS, f"{topology.EVENTS}.*"),
)
_SHARED = Rights(
    configure=(topology.CANCEL, f"{topology.CANCEL}.*", topology.EVENTS, topology.DEAD, "canoa.retry.*"),
    write=("amq.default", f"{topology.CANCEL}.*", topology.EVENTS, topology.DEAD, "canoa.retry.*"),
    read=(topology.CANCEL, f"{topology.CANCEL}.*", topology.DEAD, "canoa.retry.*"),
)
_HEARTBEATS = "canoa.heartbeat.*"
_UNICAST = topology.node_queue_name("*")
_NODE = Rights(
    configure=(topology.NODE_UNICAST, _UNICAST, topology.MANAGER_AVAILABLE, _HEARTBEATS),
    write=(topology.AMQ_TOPIC, topology.NODE_UNICAST, _UNICAST, _HEARTBEATS),  # to itself, to see whether it hears
    read=(topology.AMQ_TOPIC, topology.NODE_UNICAST, _UNICAST, topology.MANAGER_AVAILABLE, _HEARTBEATS),
)
_RECORDER = Rights(configure=(topology.SUBMIT, topology.RESULTS), write=(), read=(topology.SUBMIT, topology.RESULTS))
_CATALOGUES = topology.catalogue_queue_name("*")
_OWN_ANSWERS = topology.answers_queue_name("*")
_CANARIES = topology.canary_queue("*").name
_TAKEN = (topology.NODES_REGISTER, topology.TASK_REQUESTS, topology.STEP_RESULTS)
_TOLD = (topology.CATALOGUE, topology.MANAGER_AVAILABLE, topology.NODE_UNICAST, topology.FINAL_RESULTS)
_MANAGER = Rights(
    configure=(*_TAKEN, *_TOLD, topology.MQTT_FINALS, _CATALOGUES, _CANARIES, _OWN_ANSWERS),
    write=(topology.AMQ_TOPIC, *_TAKEN, *_TOLD, topology.MQTT_FINALS, _CATALOGUES),
    read=(
        topology.AMQ_TOPIC,
        *_TAKEN,
        topology.FINAL_RESULTS,
        topology.MQTT_FINALS,
        topology.CATALOGUE,
        _CATALOGUES,
        _CANARIES,
        _OWN_ANSWERS,
    ),
)
_SUBSCRIPTIONS = "mqtt-subscription-*"  # the plugin's names for what is subscribed to
_DEVICE = Rights(
    configure=(_SUBSCRIPTIONS,),
    write=(topology.AMQ_TOPIC, _SUBSCRIPTIONS),
    read=(topology.AMQ_TOPIC, _SUBSCRIPTIONS),
)


def needed(role: Role, apps: Iterable[str] = ("*",)) -> Rights:
    """Workers, recorders and managers call actions, too, so they may do what a client may; a manager has a recorder
    beside it. `apps`: whose actions a worker runs."""
    if role is Role.DEVICE:
        return _DEVICE
    if role is Role.CLIENT:
        return _CLIENT
    if role is Role.WORKER:
        return _CLIENT | _SHARED | _of_actions(apps) | _NODE
    recorder = _CLIENT | _SHARED | _of_actions([RECORDERS_APP]) | _RECORDER
    return recorder if role is Role.RECORDER else recorder | _MANAGER


def _of_actions(apps: Iterable[str]) -> Rights:
    names = (topology.action_queue_name, topology.suspect_queue_name)
    queues = tuple(name(f"{app}.*" if app != "*" else app) for app in apps for name in names)
    return Rights(configure=queues, write=(), read=queues)


def lacking(role: Role, granted: Rights, apps: Iterable[str] = ("*",)) -> list[str]:
    """What the expressions of `granted` do not allow, such as `read canoa.reply.*`."""
    wanted = needed(role, apps)
    return [
        f"{right} {name}"
        for right in Rights.__struct_fields__
        for name in getattr(wanted, right)
        if not any(_allows(expression, name) for expression in getattr(granted, right))
    ]


def _allows(expression: str, name: str) -> bool:
    """RabbitMQ searches, it does not match the whole; an empty expression allows nothing but the empty name."""
    try:
        return bool(expression) and re.search(expression, name.replace("*", "canoa-doctor")) is not None
    except re.error:  # Erlang's dialect is a little wider than ours
        return True


def expression(names: Iterable[str]) -> str:
    """One that matches exactly these names."""
    return f"^({'|'.join(re.escape(name).replace(re.escape('*'), '.*') for name in names)})$"


def command(role: Role, *, vhost: str, user: str, apps: Iterable[str] = ("*",)) -> str:
    """The line that gives a user these rights."""
    rights = needed(role, apps)
    expressions = [expression(getattr(rights, right)) for right in Rights.__struct_fields__]
    return shlex.join(["rabbitmqctl", "set_permissions", "-p", vhost, user, *expressions])


def _joined(some: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*some, *more]))
