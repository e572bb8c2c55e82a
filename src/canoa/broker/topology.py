"""Every exchange, queue and key Canoa uses on a broker, named once.

Queue arguments can never be changed on a live broker, so there are few of them; when one must change, the name gets a
version. Who declares what: workers (or `canoa actions declare`) the queues of actions, everyone his own reply queue.
"""

from __future__ import annotations

from canoa.broker.port import Binding, Declaration, Exchange, ExchangeKind, Queue, Relay

RUNGS_S: tuple[float, ...] = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""The ladder on which retries wait. Queue-level TTL, since a per-message TTL would wait behind the queue's head."""

DEAD = "canoa.dead"
"""Exchange and queue of dead letters."""

CANCEL = "canoa.cancel"
"""Fanout of cancellation notices; every worker binds a queue of its own."""

SUBMIT = "canoa.submit"
"""Queue of tasks that a store is to accept (`result="keep"`)."""

RESULTS = "canoa.results"
"""Queue of the results that recorders write down."""

EVENTS = "canoa.events"
"""Topic exchange of what happens to tasks: key `<kind>.<task id>`, such as `progress.0192…`."""

CATALOGUE = "canoa.catalogue"
"""Fanout of what changed among nodes and their health; every manager binds a queue of its own."""

MANAGERS_MARK = "canoa.mark.managers"
"""Queue of one transient message, by which managers see whether the broker was restarted."""

# --- Sapparchi's names, as published ---

AMQ_TOPIC = "amq.topic"
NODES_REGISTER = "sapparchi.nodes.register"
"""Key on `amq.topic`, and the managers' queue bound to it."""
NODES_ACK = "sapparchi.nodes.actions-list"
"""Key on `amq.topic`."""
MANAGER_AVAILABLE = "sapparchi.manager.available"
"""Fanout of heartbeats, and a key on `amq.topic`."""
TASK_REQUESTS = "sapparchi.process.request.entrada"
"""Queue of task requests, and a topic exchange bound to it."""
NODE_UNICAST = "sapparchi.node.unicast"
"""Headers exchange: header `nodeId` says which node's queue."""
STEP_RESULTS = "sapparchi.task.handler.saida"
"""Key on `amq.topic`, topic exchange and queue of what nodes answer."""
STEP_RESULTS_OLD = "sapparchi.task.handler_saida"
"""The same key in its other spelling."""
FINAL_RESULTS = "sapparchi.task.final.saida"
"""Key on `amq.topic`, topic exchange and queue of how tasks ended."""

FINAL_TTL_S = 86_400.0
FINAL_MAX_LENGTH = 100_000
"""Final results wait for whoever listens, not for ever: the store has them. Messages carry the time, and managers keep
the bound: clients declare the queue as published, without arguments."""

MQTT_FINALS = "canoa.finals.mqtt"
"""Queue of final results that are still to be told at an MQTT broker of its own. Declared by managers who have a link
to one; gone once none has had one for as long as final results wait."""

REPLY_PREFIX = "canoa.reply."
"""Of the queues of sessions. Their sessions read bundles."""

ANSWERS_PREFIX = "canoa.answers."
"""Of the queues on which managers hear answers to bundles that they sent. Nodes answer bundles to no others."""

CANARY_PREFIX = "canoa.canary."
"""Of the queues on which managers hear their canaries answered. Nodes answer to no others."""

REPLY_EXPIRES_S = 600.0
"""How long results wait for a caller that lost its link. Longer bridges longer cuts, and keeps garbage longer."""


CANCEL_EXPIRES_S = 60.0
"""How long notices wait for a worker that lost its link."""


def action_queue_name(action: str) -> str:
    return f"canoa.action.{action}"


def suspect_queue_name(action: str) -> str:
    return f"canoa.suspect.{action}"


def rung_name(delay_s: float) -> str:
    return f"canoa.retry.{round(delay_s * 1000)}ms"


def reply_queue(client_id: str) -> Queue:
    """Durable with an expiry: it outlives a cut link and a broker restart, not its caller."""
    return Queue(name=f"{REPLY_PREFIX}{client_id}", expires_s=REPLY_EXPIRES_S)


def mark_queue(client_id: str) -> Queue:
    """Holds one transient message, by which a caller sees whether the broker was restarted."""
    return Queue(name=f"canoa.mark.{client_id}", expires_s=REPLY_EXPIRES_S)


def cancel_queue(node_id: str) -> tuple[Queue, Binding]:
    """Not exclusive: a broker that has not noticed our old link's end would refuse it to the new one."""
    queue = Queue(name=f"canoa.cancel.{node_id}", expires_s=CANCEL_EXPIRES_S, message_ttl_s=CANCEL_EXPIRES_S)
    return queue, Binding(exchange=CANCEL, queue=queue.name)


def answers_queue_name(client_id: str) -> str:
    return f"{ANSWERS_PREFIX}{client_id}"


def answers_queue(client_id: str) -> Queue:
    """Where a manager hears what became of the bundles that it sent itself. Nothing waits there: what it cannot take at
    once, since it has enough in hand or is gone, goes on to the queue of all managers."""
    return Queue(
        name=answers_queue_name(client_id),
        expires_s=REPLY_EXPIRES_S,  # what is still in hand then goes with it: longer than whoever stops takes
        message_ttl_s=0,
        dead_letter_exchange="",
        dead_letter_key=STEP_RESULTS,
    )


def canary_queue(client_id: str) -> Queue:
    """Where nodes answer a manager's canaries: on the queue of step results they would wait behind those."""
    name = f"{CANARY_PREFIX}{client_id}"
    return Queue(name=name, expires_s=CANCEL_EXPIRES_S, message_ttl_s=CANCEL_EXPIRES_S)


def probe_queue(client_id: str) -> Queue:
    """Of one program, which sends itself messages through it to see whether the broker works."""
    return Queue(name=f"canoa.probe.{client_id}", expires_s=CANCEL_EXPIRES_S, message_ttl_s=CANCEL_EXPIRES_S)


def shared() -> list[Declaration]:
    """What all workers share: the retry ladder, the dead letters, the cancellation notices.

    A rung is a fanout, so the message keeps the routing key it was sent with: its action's queue, to which the rung's
    queue dead-letters it through the default exchange once its time has come.
    """
    declared: list[Declaration] = [
        Exchange(name=CANCEL, kind=ExchangeKind.FANOUT),
        Exchange(name=EVENTS, kind=ExchangeKind.TOPIC),
        Exchange(name=DEAD, kind=ExchangeKind.FANOUT),
        Queue(name=DEAD),
        Binding(exchange=DEAD, queue=DEAD),
    ]
    for delay_s in RUNGS_S:
        name = rung_name(delay_s)
        declared += [
            Exchange(name=name, kind=ExchangeKind.FANOUT),
            Queue(name=name, message_ttl_s=delay_s, dead_letter_exchange=""),
            Binding(exchange=name, queue=name),
        ]
    return declared


def recorder() -> list[Declaration]:
    """What recorders consume, besides the dead letters. Declared by them alone: who submits a task to be kept where
    nobody ever kept one hears so at once."""
    return [Queue(name=SUBMIT), Queue(name=RESULTS)]


def node_queue_name(node_id: str) -> str:
    return f"{NODE_UNICAST}.{node_id}"


def node_queue(node_id: str, *, expires_s: float | None = None) -> list[Declaration]:
    """Declared by the node alone, as published: durable, without arguments. A node with a name that nobody will use
    again gives it an expiry."""
    queue = Queue(name=node_queue_name(node_id), expires_s=expires_s)
    return [
        Exchange(name=NODE_UNICAST, kind=ExchangeKind.HEADERS),
        queue,
        Binding(exchange=NODE_UNICAST, queue=queue.name, headers={"nodeId": node_id}),
    ]


def node_topic_key(node_id: str) -> str:
    """On `amq.topic`: MQTT's `sapparchi/node/<nodeId>/in`, as the broker translates it."""
    return f"sapparchi.node.{node_id}.in"


def heartbeat_queue_name(node_id: str, instance: str) -> str:
    """Of one start of a node: two that claim one id must not hear each other's answers."""
    return f"canoa.heartbeat.{node_id}.{instance}"


def heartbeat_queue(node_id: str, instance: str) -> list[Declaration]:
    """What a node hears of managers: heartbeats, and acknowledgements of registrations."""
    name = heartbeat_queue_name(node_id, instance)
    queue = Queue(name=name, expires_s=CANCEL_EXPIRES_S, message_ttl_s=CANCEL_EXPIRES_S)
    return [
        Exchange(name=MANAGER_AVAILABLE, kind=ExchangeKind.FANOUT),
        queue,
        Binding(exchange=MANAGER_AVAILABLE, queue=queue.name),
        Binding(exchange=AMQ_TOPIC, queue=queue.name, key=NODES_ACK),
    ]


def catalogue_queue_name(client_id: str) -> str:
    return f"canoa.catalogue.{client_id}"


def catalogue_queue(client_id: str) -> list[Declaration]:
    queue = Queue(name=catalogue_queue_name(client_id), expires_s=CANCEL_EXPIRES_S, message_ttl_s=CANCEL_EXPIRES_S)
    return [
        Exchange(name=CATALOGUE, kind=ExchangeKind.FANOUT),
        queue,
        Binding(exchange=CATALOGUE, queue=queue.name),
    ]


def manager() -> list[Declaration]:
    """What managers share. A node's queue is the node's own: nobody else declares it."""
    return [
        Exchange(name=CATALOGUE, kind=ExchangeKind.FANOUT),
        Queue(name=MANAGERS_MARK),
        Exchange(name=MANAGER_AVAILABLE, kind=ExchangeKind.FANOUT),
        Exchange(name=NODE_UNICAST, kind=ExchangeKind.HEADERS),
        Queue(name=NODES_REGISTER),
        Binding(exchange=AMQ_TOPIC, queue=NODES_REGISTER, key=NODES_REGISTER),
        Exchange(name=TASK_REQUESTS, kind=ExchangeKind.TOPIC),
        Queue(name=TASK_REQUESTS),
        Binding(exchange=TASK_REQUESTS, queue=TASK_REQUESTS, key="#"),
        Binding(exchange=AMQ_TOPIC, queue=TASK_REQUESTS, key=TASK_REQUESTS),  # from MQTT
        Exchange(name=STEP_RESULTS, kind=ExchangeKind.TOPIC),
        Queue(name=STEP_RESULTS),
        Binding(exchange=STEP_RESULTS, queue=STEP_RESULTS, key="#"),
        Binding(exchange=AMQ_TOPIC, queue=STEP_RESULTS, key=STEP_RESULTS),
        Binding(exchange=AMQ_TOPIC, queue=STEP_RESULTS, key=STEP_RESULTS_OLD),
        Exchange(name=FINAL_RESULTS, kind=ExchangeKind.TOPIC),
        Relay(exchange=AMQ_TOPIC, to=FINAL_RESULTS, key=FINAL_RESULTS),
        Queue(name=FINAL_RESULTS),
        Binding(exchange=FINAL_RESULTS, queue=FINAL_RESULTS, key="#"),
    ]


def mqtt_finals() -> list[Declaration]:
    """What managers consume who have a link to an MQTT broker. A bound of its own: that broker may be away for long."""
    queue = Queue(name=MQTT_FINALS, expires_s=FINAL_TTL_S, message_ttl_s=FINAL_TTL_S, max_length=FINAL_MAX_LENGTH)
    return [
        Exchange(name=FINAL_RESULTS, kind=ExchangeKind.TOPIC),
        queue,
        Binding(exchange=FINAL_RESULTS, queue=queue.name, key="#"),
    ]


def progress_key(task_id: str) -> str:
    return f"progress.{task_id}"


def event_queue(client_id: str, *keys: str) -> list[Declaration]:
    """A queue of one listener's own; what happens while it is away, it misses."""
    queue = Queue(name=f"canoa.events.{client_id}", expires_s=CANCEL_EXPIRES_S, message_ttl_s=CANCEL_EXPIRES_S)
    return [queue, *(Binding(exchange=EVENTS, queue=queue.name, key=key) for key in keys)]


def of_action(action: str, *, quorum: bool = False, max_priority: int | None = None) -> list[Declaration]:
    """An action's queue, and the one where messages that may have ended a worker wait to run alone."""
    return [
        Queue(name=action_queue_name(action), quorum=quorum, max_priority=max_priority),
        Queue(name=suspect_queue_name(action), quorum=quorum),
    ]
