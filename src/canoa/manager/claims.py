"""What a registration says. Pure: messages in, rows out.

Bodies come from anybody who may publish: sizes, ids and names are checked before anything is kept. Whether it may have
the id that it claims is in `owning.py`, what it says together with the node's other ways in `sides.py`.
"""

from __future__ import annotations

import enum
import hashlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from canoa.errors import PayloadTooLarge, SettingError, Undecodable, WrongUse
from canoa.execution.endpoints import Endpoint, read_endpoint
from canoa.execution.link_budget import BUDGET
from canoa.execution.placement import check_labels
from canoa.execution.proof import Proof
from canoa.manager.reading import unpacked
from canoa.store.routed_port import NodeRow
from canoa.transports.ways import ordered
from canoa.urn import action_name
from canoa.vocabulary import AMQP, HTTP, MQTT, MQTT_LINK, MQTT_UNHEARD, ActionName, NodeId, protocol_of
from canoa.wire import sapparchi
from canoa.wire.compression_policy import Compression
from canoa.wire.sapparchi import ActionLimits, Registration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from canoa.broker.port import HeaderValue, Message

MAX_FACT_CHARS: Final = 128
"""Of what a header says about a node."""
MAX_TIMEOUT_MS: Final = 7 * 86_400_000
MAX_RETRIES: Final = 1000
MAX_GRACE_S: Final = 366 * 86_400.0
MAX_COUNT: Final = 2**31

_NOT_SAID: Final[dict[str, Any]] = {
    "token": "",
    "fingerprint": "",
    "proof": Proof.UNPROVEN,
    "load": None,
    "registered_ms": 0,
    "seen_ms": 0,
    "version": 0,
}
_NODE_ID: Final = re.compile(rf"[A-Za-z0-9_.:-]{{1,{sapparchi.MAX_NODE_ID_CHARS}}}")
_ENDPOINT: Final = re.compile(r"[A-Za-z0-9_.:/\[\]-]{1,200}")


class Reason(enum.StrEnum):
    """Why a registration is refused: a metric's label."""

    OVERSIZED = "oversized"
    MALFORMED = "malformed"
    NODE_ID = "node_id"
    ACTIONS = "actions"
    RIVAL = "rival"  # another node has the id, and lives
    TOO_MANY = "too_many"
    ENDPOINT = "endpoint"  # the only way to it is an address that is not called


class Refused(NamedTuple):
    reason: Reason
    why: str
    node_id: str = ""


class Claim(NamedTuple):
    """A registration that can be believed. `row` has neither token nor times: the manager gives those."""

    row: NodeRow
    strange: int = 0  # actions it offers under names that cannot be


def read_claim(message: Message) -> Claim | Refused:
    try:
        said = sapparchi.decode(unpacked(message, sapparchi.MAX_REGISTRATION_BYTES), Registration)
    except PayloadTooLarge as exc:
        return Refused(Reason.OVERSIZED, f"{exc.size_bytes:,} bytes, of {exc.limit_bytes:,} at most")
    except Undecodable as exc:
        return Refused(Reason.MALFORMED, str(exc))
    if not f"{said.endpoint}{said.type}".isprintable():
        return Refused(Reason.MALFORMED, "its endpoint or type has characters that nobody can print")
    key = _key(said)
    if key is None:
        return Refused(Reason.NODE_ID, "a node's id has 1 to 128 letters, digits, '-', '_', '.' or ':'")
    actions = _actions(said.actions)
    if said.actions and not actions:
        return Refused(Reason.ACTIONS, f"none of its {len(said.actions)} actions has a name that can be", key)
    return Claim(_row(said, NodeId(key), actions, message.headers), _strange(said, actions))


def _key(said: Registration) -> str | None:
    """Its id, or its endpoint where it has none."""
    if said.node_id:
        return said.node_id if _NODE_ID.fullmatch(said.node_id) else None
    return said.endpoint if said.endpoint and _ENDPOINT.fullmatch(said.endpoint) else None


def _actions(urns: list[str]) -> tuple[ActionName, ...]:
    names: set[ActionName] = set()
    for urn in urns:
        try:
            names.add(action_name(urn))
        except WrongUse:
            continue
    return tuple(sorted(names))


def _strange(said: Registration, actions: tuple[ActionName, ...]) -> int:
    return len(set(said.actions)) - len(actions) if len(actions) < len(said.actions) else 0


def _row(
    said: Registration, node_id: NodeId, actions: tuple[ActionName, ...], headers: Mapping[str, HeaderValue]
) -> NodeRow:
    ways = ordered(said.layer, _ways(said, headers))
    row = NodeRow(
        node_id=node_id,
        layer=said.layer,
        actions=actions,
        site=_text(headers.get(sapparchi.SITE)),
        type=said.type or "",
        endpoint=said.endpoint or "",
        instance=_text(headers.get(sapparchi.INSTANCE)),
        limits=_limits(headers.get(sapparchi.LIMITS), actions),
        takes_bundles=headers.get(sapparchi.BUNDLES) is True,
        takes_canaries=headers.get(sapparchi.CANARIES) is True,
        grace_s=_seconds(headers.get(sapparchi.GRACE)),
        encodings=_encodings(headers.get(sapparchi.ENCODINGS)),
        link_budget=_link_budget(headers.get(sapparchi.LINK_BUDGET)),
        labels=_labels(headers.get(sapparchi.LABELS)),
        link=_count(headers.get(sapparchi.LINK)),
    )
    closed = _protocols(headers.get(sapparchi.CLOSED))
    row = reached(row, ways, closed=[way for way in ways if protocol_of(way) in closed])
    return msgspec.structs.replace(row, load=_load(headers.get(sapparchi.LOAD)))


def reached(row: NodeRow, ways: Iterable[str], *, closed: Collection[str]) -> NodeRow:
    """By these ways, of which some are closed; with the fingerprint of that."""
    ways = ordered(row.layer, ways)
    known = [way for way in ways if way != MQTT_UNHEARD]
    best = next((way for way in known if way not in closed), known[0] if known else "")
    places = {"ways": ways if len(ways) > 1 else (), "closed": tuple(way for way in ways if way in closed)}
    row = msgspec.structs.replace(row, protocol=best, **places)
    return msgspec.structs.replace(row, fingerprint=fingerprint(row))


def _ways(said: Registration, headers: Mapping[str, HeaderValue]) -> frozenset[str]:
    """By which it can be reached: as it says, or where it spoke, and at its endpoint if that is an address. Who has no
    id has no queue either."""
    here = _spoke_by(said, headers)
    if told := _protocols(headers.get(sapparchi.WAYS)):
        topic = here & {MQTT, MQTT_LINK} or {MQTT_UNHEARD}  # one that says so alone may have it at either broker
        ways = (told & {AMQP}) | (topic if MQTT in told else frozenset())
    else:
        ways = here
    return ways | {HTTP} if isinstance(read_endpoint(said.endpoint or ""), Endpoint) else ways


def _spoke_by(said: Registration, headers: Mapping[str, HeaderValue]) -> frozenset[str]:
    if sapparchi.BY_HTTP in headers or not said.node_id:
        return frozenset()
    if sapparchi.BY_MQTT_LINK in headers:
        return frozenset({MQTT_LINK})
    return frozenset({MQTT if sapparchi.BY_MQTT in headers else AMQP})


def fingerprint(row: NodeRow) -> str:
    """Of all that a registration says, save what changes by itself, and what managers add."""
    said = msgspec.structs.replace(row, **_NOT_SAID)
    return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()


# --- Headers: Canoa's own, so what is wrong with them is not worth a refusal ------------------------------


def _text(value: HeaderValue) -> str:
    return value[:MAX_FACT_CHARS] if isinstance(value, str) and value.isprintable() else ""


def _protocols(value: HeaderValue) -> frozenset[str]:
    return frozenset(each.strip() for each in _text(value).split(",")) & {AMQP, MQTT, HTTP}


def _encodings(value: HeaderValue) -> tuple[str, ...]:
    said = frozenset(each.strip() for each in _text(value).split(","))
    return tuple(each.value for each in Compression if each in said)


def _link_budget(value: HeaderValue) -> str:
    text = _text(value)
    return text if re.fullmatch(BUDGET, text) else ""


def _labels(value: HeaderValue) -> dict[str, str]:
    if not isinstance(value, str | bytes) or len(value) > sapparchi.MAX_REGISTRATION_BYTES:
        return {}
    try:
        labels = msgspec.json.decode(value, type=dict[str, str])
        check_labels(labels)
    except (msgspec.DecodeError, UnicodeDecodeError, SettingError):
        return {}
    return labels


def _load(value: HeaderValue) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e6 else None


def _seconds(value: HeaderValue) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value <= MAX_GRACE_S else None


def _count(value: HeaderValue) -> int:
    return value if type(value) is int and 0 <= value < MAX_COUNT else 0


def _limits(value: HeaderValue, actions: tuple[ActionName, ...]) -> dict[ActionName, ActionLimits]:
    """What is wrong with one action's is not the others'."""
    if not isinstance(value, str | bytes) or len(value) > sapparchi.MAX_REGISTRATION_BYTES:
        return {}
    try:
        said = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    by_name = {name.removeprefix("urn:sapparchi:Action:"): limits for name, limits in said.items()}
    read = {action: _limits_of(by_name[action]) for action in actions if action in by_name}
    return {action: limits for action, limits in read.items() if limits is not None and _is_sane(limits)}


def _limits_of(said: msgspec.Raw) -> ActionLimits | None:
    try:
        return msgspec.json.decode(said, type=ActionLimits)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, SettingError):
        return None


def _is_sane(limits: ActionLimits) -> bool:
    return (limits.timeout is None or 0 < limits.timeout <= MAX_TIMEOUT_MS) and 0 <= limits.retry <= MAX_RETRIES
