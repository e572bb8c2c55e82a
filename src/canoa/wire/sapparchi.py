"""The wire between managers and nodes, as published: registration, heartbeat, request, message, result.

Bodies are JSON and fixed: a node in any language joins by them alone. What Canoa adds travels in headers, and
everything works without it. Names of exchanges, queues and keys are in `broker/topology.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, TypeVar

import msgspec

from canoa.errors import Undecodable
from canoa.execution.placement import Placement
from canoa.urn import ACTION_PREFIX
from canoa.vocabulary import Layer

# --- Headers: what Canoa adds -------------------------------------------------------------------------

NODE_ID: Final = "nodeId"  # of the publication itself: what the headers exchange matches

OWNER: Final = "canoa-owner"  # who retries; a worker never retries what a manager owns
MANAGER: Final = "manager"
TASK: Final = "canoa-task"  # the task's id, for logs and traces
STEP: Final = "canoa-step"  # the step's name, likewise

PLAN: Final = "canoa-plan"  # of a request: JSON of an `execution.plan.Plan`
MAX_PLAN_BYTES: Final = 64 * 1024
"""Headers must fit into one frame. A larger plan is registered first, and then run by its name."""

STATUS: Final = "canoa-status"  # of a result: an `Outcome`, or `RETURNED`
RETURNED: Final = "returned"  # it did not start: the node leaves, or does not offer it; somebody else may have it
ENDED: Final = "canoa-ended"  # epoch milliseconds, by managers' time as the node knows it; so is `result.STARTED`
ERROR_TYPE: Final = "canoa-error-type"
NO_RETRY: Final = "canoa-no-retry"  # true: the action said that another attempt is pointless
SUSPECT: Final = "canoa-suspect"  # true: it may have ended its node's process, and runs alone; from a node to itself

SITE: Final = "canoa-site"  # of a registration, like the following; also of a request: where its caller stands
LABELS: Final = "canoa-labels"  # JSON object of texts: what placements may ask for
INSTANCE: Final = "canoa-instance"  # changes with every start: tells two that claim one id apart
LIMITS: Final = "canoa-limits"  # JSON object, URN to `ActionLimits`
LOAD: Final = "canoa-load"  # attempts that run, as a share of those that may
VERSION: Final = "canoa-version"
BUNDLES: Final = "canoa-bundles"  # true: its queue is `topology.node_queue_name`, and may bring several messages as one
CANARIES: Final = "canoa-canary"  # true: it answers canaries at once
GRACE: Final = "canoa-grace"  # seconds that it may be cut off before it is dead; none: as managers think

ENCODINGS: Final = "canoa-encodings"  # by comma: content encodings that it reads, such as gzip,zstd
LINK_BUDGET: Final = "canoa-link-budget"  # what may travel to and from it, such as 10MB/day

WAYS: Final = "canoa-ways"  # by which it can be reached, by comma: AMQP,MQTT,HTTP
CLOSED: Final = "canoa-closed"  # those of them that are closed just now; of a farewell: those that it is about
LINK: Final = "canoa-link"  # how many links it has had to its MQTT broker, where nothing there outlives one

BY_MQTT: Final = "x-mqtt-publish-qos"  # RabbitMQ's own, of what was published over MQTT
BY_MQTT_LINK: Final = "canoa-by-mqtt"  # of what came by a manager's own link to an MQTT broker
BY_HTTP: Final = "canoa-by-http"  # of what came to a manager's HTTP door

TAKEN: Final = "canoa-taken"  # of an acknowledgement to one `INSTANCE`: true: another live node has its id

# --- Bodies -------------------------------------------------------------------------------------------

MAX_NODE_ID_CHARS: Final = 128
MAX_ACTIONS: Final = 2_000
MAX_REGISTRATION_BYTES: Final = 256 * 1024

_ShortText = Annotated[str, msgspec.Meta(max_length=512)]
_Unused = int | float | str | None
"""Of what others write and Canoa can do without: no reason to refuse the rest."""


class Registration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node says what it is and what it offers. No actions: it leaves."""

    node_id: Annotated[str, msgspec.Meta(max_length=MAX_NODE_ID_CHARS)] | None = ""
    endpoint: _ShortText | None = ""
    layer: Layer = Layer.CLOUD
    type: _ShortText | None = ""
    actions: Annotated[list[_ShortText], msgspec.Meta(max_length=MAX_ACTIONS)] = []
    force_register: bool | None = False


class RegistrationAck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    token: str
    node_id: str
    actions: list[str]  # those that were accepted


class ActionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """An action's `parameters`, with what Canoa adds to them. What is not said is left out: then others that know less
    write down the same."""

    timeout: int | None = 30_000  # milliseconds of one attempt
    retry: int = 3
    routing: str | msgspec.UnsetType | None = msgspec.UNSET  # a `Routing`; one that is not known is as good as none
    placement: Placement | msgspec.UnsetType | None = msgspec.UNSET  # which nodes it may have


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    available: bool = True
    force_register: bool = False
    ts: int = 0  # epoch milliseconds: the same one may come by two ways
    schema: int = 1


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a request's `task_plan`."""

    step: str
    action: str
    after: list[str] = []


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A task for the managers: with a plan, a list of actions, or the name of a registered plan."""

    id: str
    task_id: str = ""
    target_actions: list[str] = []
    message_data: str = "{}"
    created_at: _Unused = 0  # epoch milliseconds; anything else is as good as nothing
    processing_time: _Unused = 0
    task_plan: list[PlannedStep] | None = None


class NodeMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """To a node: run this. From a node: this came out. `requestID` is opaque, and one attempt's own."""

    action_to: str = msgspec.field(name="actionTo")
    request_id: str = msgspec.field(name="requestID")
    message_data: str = msgspec.field(name="messageData", default="{}")


class NodeError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a node that knows no status header says that it failed: an object whose only key is `error`."""

    error: Any


# --- To and from bytes --------------------------------------------------------------------------------

_Body = TypeVar("_Body", Registration, RegistrationAck, Heartbeat, TaskRequest, NodeMessage)

encode = msgspec.json.Encoder().encode

_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Registration, RegistrationAck, Heartbeat, TaskRequest, NodeMessage)
}


def decode(body: bytes, kind: type[_Body]) -> _Body:
    """Raises `Undecodable`, saying what is wrong with it."""
    try:
        return _decoders[kind].decode(body)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Undecodable(f"a body of {len(body):,} bytes is no {kind.__name__}: {exc}") from exc


# --- Canaries: messages that prove that a node hears ------------------------------------------------------

CANARY: Final = f"{ACTION_PREFIX}canoa.canary"
"""What a canary's `actionTo` says. No action: a node answers it at its door."""

CANARY_PREFIX: Final = "canoa-canary:"


def canary_id(node_id: str, nonce: str) -> str:
    """A `requestID` that no attempt has: none of those ends with a colon and letters."""
    return f"{CANARY_PREFIX}{node_id}:{nonce}"


def canary_node(request_id: str) -> str | None:
    """Whom that canary was sent to; None: it is no canary's id."""
    return request_id[len(CANARY_PREFIX) :].rpartition(":")[0] if request_id.startswith(CANARY_PREFIX) else None


# --- Request ids ----------------------------------------------------------------------------------------

_MAX_DIGITS: Final = 9
_MAX_TAIL_CHARS: Final = 3 * (1 + _MAX_DIGITS)
_TAILS: Final = 1024
"""Of request ids that are remembered: most steps are sent once, and plans are short. To write or read one takes as long
as all the rest of the id."""


def request_id(task_id: str, step: int, attempt: int, send: int) -> str:
    """Unique per attempt, and per node it was sent to: `send` counts those."""
    return task_id + _tail(step, attempt, send)


def parse_request_id(text: str) -> tuple[str, int, int, int] | None:
    """Task id, step, attempt, send; None for what no manager of ours made."""
    parts = text.rsplit(".", 3)  # half the time that a regular expression takes
    if len(parts) != 4 or not parts[0] or len(text) - len(parts[0]) > _MAX_TAIL_CHARS:
        return None
    numbers = _numbers(parts[1], parts[2], parts[3])
    return None if numbers is None else (parts[0], *numbers)


@lru_cache(_TAILS)
def _tail(step: int, attempt: int, send: int) -> str:
    return f".{step}.{attempt}.{send}"


@lru_cache(_TAILS)
def _numbers(*texts: str) -> tuple[int, int, int] | None:
    if not all(each.isdecimal() and len(each) <= _MAX_DIGITS for each in texts):
        return None
    step, attempt, send = map(int, texts)
    return step, attempt, send
