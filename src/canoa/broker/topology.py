"""Every exchange, queue and key Canoa uses on a broker, named once.

Queue arguments can never be changed on a live broker, so there are few of them; when one must change, the name gets a
version. Who declares what: workers (or `canoa actions declare`) the queues of actions, everyone his own reply queue.
"""

from __future__ import annotations

from canoa.broker.port import Binding, Declaration, Exchange, ExchangeKind, Queue

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
    return Queue(name=f"canoa.reply.{client_id}", expires_s=REPLY_EXPIRES_S)


def mark_queue(client_id: str) -> Queue:
    """Holds one transient message, by which a caller sees whether the broker was restarted."""
    return Queue(name=f"canoa.mark.{client_id}", expires_s=REPLY_EXPIRES_S)


def cancel_queue(node_id: str) -> tuple[Queue, Binding]:
    """Not exclusive: a broker that has not noticed our old link's end would refuse it to the new one."""
    queue = Queue(name=f"canoa.cancel.{node_id}", expires_s=CANCEL_EXPIRES_S, message_ttl_s=CANCEL_EXPIRES_S)
    return queue, Binding(exchange=CANCEL, queue=queue.name)


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
