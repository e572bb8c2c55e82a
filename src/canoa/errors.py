"""Every error Canoa raises, branched by what the caller can do about it.

One root, `CanoaError`. Below it: *retry* (nothing wrong with the request, the world was not ready), *fix your code*
(the same call will fail again), and *the task ended* (it was accepted and this is how it went).
Adapters translate their driver's errors into these and keep the cause.
"""

from __future__ import annotations


class CanoaError(Exception):
    """The root of everything Canoa raises on purpose."""


# --- Retry: the request was fine ------------------------------------------------------------------


class BrokerUnreachable(CanoaError):
    """No link to the broker. Nothing was sent; retrying is safe."""


class BrokerBlocked(BrokerUnreachable):
    """The broker takes no messages for now (memory or disk alarm). Nothing was sent; retrying is safe."""


class DeliveryUnknown(CanoaError):
    """The link broke, or the broker refused, before the answer came. Retry only what is idempotent."""


class BrokerRefusedMessage(CanoaError):
    """The broker answered no (`basic.nack`): its queue is full or failed. It was not stored; retrying is safe."""


class StoreUnreachable(CanoaError):
    """No link to the store, or it broke before the answer came. Retrying a question is safe, and a submit with an
    idempotency key; one without may be accepted twice."""


class StoreFull(CanoaError):
    """The store has no room (disk full). Nothing was accepted; retrying is safe, once there is room."""


class NobodyKeeps(CanoaError):
    """Nobody keeps results on this broker. Nothing was sent; retrying is safe."""


class NobodyAnswers(NobodyKeeps):
    """Results are kept on this broker, but no recorder is there, or none answered in time. Retrying a question is safe,
    and a submit with an idempotency key."""


class NobodyManages(CanoaError):
    """No manager ever ran on this broker, or none in this process. Nothing was accepted; retrying is safe."""


class ManagersGone(NobodyManages):
    """Managers ran on this broker, and none of them is there now. Nothing was accepted; retrying is safe."""


class NodeIdTaken(CanoaError):
    """Another live worker has this node id. This one takes no work; retrying is safe, once the other is gone."""

    def __init__(self, node_id: str) -> None:
        super().__init__(
            f"another live worker has the node id {node_id!r:.150}; "
            f"give this one an id of its own (--node-id), or stop the other one first"
        )
        self.node_id = node_id


class NodeDeaf(CanoaError):
    """A worker is connected, and what is sent to its queue or topic does not reach it, also after it listened anew. It
    takes no work; starting it again is safe."""

    def __init__(self, node_id: str, remedy: str) -> None:
        super().__init__(f"what is sent to node {node_id!r:.150} does not reach it; {remedy}")
        self.node_id = node_id


class ApiUnreachable(CanoaError):
    """Nobody answers at the API's address. Nothing was sent; retrying is safe."""


class ResultNotReady(CanoaError, TimeoutError):
    """The wait ended before the task did. The handle stays usable: wait again, or cancel it."""


# --- Fix your code or your setting: the same call will fail again -----------------------------------


class WrongUse(CanoaError):
    """The request cannot work as it stands."""


class BrokerRefusedLogin(WrongUse):
    """The broker does not accept the credentials, or the virtual host does not exist. Not retried at start."""


class BrokerRefusedOperation(WrongUse):
    """The broker closed the channel: permission denied, or a declaration that differs from what exists."""


class DeclarationDiffers(BrokerRefusedOperation):
    """What was declared exists, with other traits. Nothing was changed."""


class QueueMissing(WrongUse):
    """The queue does not exist."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} does not exist")
        self.queue = queue


class Unroutable(WrongUse):
    """No queue is bound where the message was sent (`mandatory`). The broker did not keep it."""


class UnknownAction(WrongUse):
    """Nobody ever offered this action on this broker; or, of a routed task, no node to the managers."""

    def __init__(self, action: str, *, is_memory: bool = False, nodes_offer: str | None = None) -> None:
        """`nodes_offer`: of a routed task, what is known of that instead."""
        super().__init__(_unoffered(action, is_memory) if nodes_offer is None else _unrouted(action, nodes_offer))
        self.action = action


def _unoffered(action: str, is_memory: bool) -> str:
    remedy = (
        "no broker is named, so this is the memory broker of this process alone: "
        "open `app.worker()` here, or set CANOA_BROKER"
        if is_memory
        else "start one (`canoa worker module:app`), or declare its queue first (`canoa actions declare module:app`)"
    )
    return f"no worker has ever offered action {action!r} on this broker; {remedy}"


def _unrouted(action: str, hint: str) -> str:
    """A manager needs a node: a queue of the pool would be of no use to it."""
    told = f" {hint}" if hint.endswith("?") else f" {hint};" if hint else ""
    return (
        f"no node has ever offered action {action!r:.200};{told} "
        f"`canoa nodes` shows who offers what, `canoa worker module:app` starts a node"
    )


class ActionDefinitionError(WrongUse):
    """A function cannot become an action: its parameters or its result cannot travel."""


class ArgumentsRefused(WrongUse):
    """Arguments that do not fit the action's parameters. Refused before anything was sent, or by the worker."""


class PlanRefused(WrongUse):
    """A plan that cannot run as it is written. Nothing was sent. `step`: whose fault it is, where it is one's."""

    step: str | None = None

    def __init__(self, message: str, *, step: str | None = None) -> None:
        super().__init__(message)
        self.step = step


class InputMissing(WrongUse):
    """A step refers to a key that is not in what the task or another step gave it."""


class PayloadTooLarge(WrongUse):
    """A body over the size limit."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int, *, remedy: str = "") -> None:
        otherwise = "send a reference (a path, a URL) instead, or raise CANOA_MAX_PAYLOAD_BYTES on both sides"
        super().__init__(f"{what} is {size_bytes:,} bytes, over the limit of {limit_bytes:,}; {remedy or otherwise}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class Undecodable(WrongUse):
    """Bytes that are not what they claim to be: content type, compression, JSON or msgpack, nesting."""


class UnknownTask(WrongUse):
    """The store knows no task of this id: it was never kept, or its retention is over."""

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"no task {task_id!r:.80} is kept here; routed tasks and those with result='keep' are, "
            f"until their retention is over"
        )
        self.task_id = task_id


class UnknownPlan(WrongUse):
    """No plan is registered under this name."""

    def __init__(self, name: str, *, registered: str = "") -> None:
        """`registered`: what is known of those that are."""
        told = f" {registered}" if registered.endswith("?") else f" {registered};" if registered else ""
        super().__init__(f"no plan {name!r:.80} is registered here;{told} `canoa plans register plan.yaml` adds one")
        self.name = name


class UnknownNode(WrongUse):
    """No node of this id has registered, or it was silent for so long that it is forgotten."""

    def __init__(self, node_id: str) -> None:
        super().__init__(f"no node {node_id!r:.80} is known here; `canoa nodes` shows those that are")
        self.node_id = node_id


class EndpointRefused(WrongUse):
    """A node has no other way than an endpoint that managers do not call. It was not accepted."""

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(f"endpoint {endpoint!r:.250} is not called: {why}")
        self.endpoint = endpoint


class NotRouted(WrongUse):
    """The task has no steps: the pool ran it, and no manager."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id!r:.80} was not routed, so it has no steps; `canoa tasks ID` tells about it")
        self.task_id = task_id


class NotDead(WrongUse):
    """No dead letter of this task waits: it lives, was redriven, or its retention is over."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"no dead letter of task {task_id!r:.80} waits here; `canoa dead list` shows those that do")
        self.task_id = task_id


class UnknownToken(WrongUse):
    """No token has this name, or its time in the list is over."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no token {name!r:.80} is known here; `canoa token list` shows those that are")
        self.name = name


class TokenNameTaken(WrongUse):
    """A token that has neither expired nor been revoked has this name. Nothing was changed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"a live token is called {name!r:.80}; `canoa token revoke {name:.80}` first, or use another name"
        )
        self.name = name


class StoreTooNew(WrongUse):
    """The store was written by a newer version of Canoa. Nothing was changed."""


class StoreTaken(WrongUse):
    """Another process already runs on this folder's store."""


class SettingError(WrongUse):
    """A setting or argument with a value that cannot be used."""


class DoNotRetry(CanoaError):
    """Raise it inside an action: this attempt failed, and another one would fail the same way."""


# --- The task ended, and not with a result ----------------------------------------------------------


class TaskEnded(CanoaError):
    """An accepted task that ended without a result. `task_id` names it in logs and dead letters."""

    def __init__(self, message: str, *, task_id: str) -> None:
        super().__init__(message)
        self.task_id = task_id


class ActionFailed(TaskEnded):
    """The action raised on its last attempt. `error_type`, `attempts` and `remote_traceback` are the worker's words."""

    def __init__(
        self, message: str, *, task_id: str, error_type: str, attempts: int, remote_traceback: str = ""
    ) -> None:
        super().__init__(message, task_id=task_id)
        self.error_type = error_type
        self.attempts = attempts
        self.remote_traceback = remote_traceback


class ActionTimedOut(TaskEnded):
    """The last attempt ran longer than the action's `timeout`."""


class TaskExpired(TaskEnded):
    """The task did not start within its `queue_timeout`."""


class TaskCancelled(TaskEnded):
    """The task was cancelled. It may still have run: see `docs/concepts/guarantees.md`."""


class TaskPoisoned(TaskEnded):
    """The task ended its worker's process `max_crashes` times and now waits among the dead letters."""


class TaskRefused(TaskEnded):
    """The worker could not use the request (arguments, encoding, size) or could not encode the result."""


# --- Told by another process --------------------------------------------------------------------------


def named(kind: str, message: str) -> CanoaError | None:
    """The error of that class with that very text, but without its facts; None where there is no such class."""
    found = globals().get(kind)
    if not (isinstance(found, type) and issubclass(found, CanoaError)):
        return None
    return found.__new__(found, message)  # not called: each class words its own message
