"""What a request may say, in its body and in its query: strict structs, so that a misspelt field is refused, not lost.

Bodies are read here as well: never more than the limit, never for longer than a slow link needs.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from canoa.action import MAX_S
from canoa.api.errors import TooSlow, WrongContentType
from canoa.errors import (
    PayloadTooLarge,
    SettingError,
    UnknownAction,
    UnknownNode,
    UnknownPlan,
    UnknownTask,
    UnknownToken,
    WrongUse,
)
from canoa.execution.outcome import Outcome
from canoa.execution.placement import MAX_SITE_CHARS, SITE_PATTERN
from canoa.recorder import views
from canoa.recorder.routed_views import RoutedRequest
from canoa.recorder.token_desk import MAX_EXPIRES_S, NAME
from canoa.store.port import State
from canoa.urn import ACTION_PREFIX, MAX_NAME_CHARS, TASK_PREFIX, action_name, task_name
from canoa.vocabulary import Role
from canoa.wire.codec import Codec, TypeMismatch

T = TypeVar("T")

MAX_PAGE: Final = 500
MAX_BATCH: Final = 1000
MAX_WAIT_S: Final = 60
MAX_ID_BYTES: Final = 512

MARGIN_BYTES: Final = 64 * 1024
"""What a body may hold besides the arguments."""

BODY_WITHIN_S: Final = 60.0
"""A mebibyte over a link of 140 kbit/s."""

SWALLOWED_BYTES: Final = 16 * 1024 * 1024
"""How much of a body that is too large is still taken: a sender that is cut off while it writes hears no answer."""

SiteText = Annotated[str, Meta(pattern=SITE_PATTERN, max_length=MAX_SITE_CHARS)]
Seconds = Annotated[float, Meta(gt=0, le=MAX_S)]
ActionText = Annotated[
    str,
    Meta(
        pattern=r"^(urn:sapparchi:Action:)?[A-Za-z0-9_-]{1,80}(\.[A-Za-z0-9_-]{1,80})+$",
        max_length=len(ACTION_PREFIX) + MAX_NAME_CHARS,
        description="An action's name, `<app>.<action>`, or its URN.",
        examples=["shop.resize"],
    ),
]
# Without a pattern: msgspec 0.22 frees that twice where a text or an object may stand, and the process dies.
PlanText = Annotated[str, Meta(min_length=1, max_length=len(TASK_PREFIX) + MAX_NAME_CHARS)]
_TASK_ID: Final = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
TaskIdText = Annotated[str, Meta(pattern=f"^{_TASK_ID.pattern}$", description="A task's id.")]
NodeIdText = Annotated[str, Meta(pattern=f"^{_TASK_ID.pattern}$", description="A node's id.")]


class _Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of what a request may say."""


class Options(_Asked, frozen=True, kw_only=True):
    """How this submit differs from the action's own settings. Left out, or null: as the action says."""

    timeout: Annotated[Seconds | None, Meta(description="Seconds one attempt may run.")] = None
    retry: Annotated[
        Annotated[int, Meta(ge=0, lt=2**31)] | None, Meta(description="Attempts after the first that failed.")
    ] = None
    queue_timeout: Annotated[Seconds | None, Meta(description="No attempt starts later than so many seconds.")] = None
    priority: Annotated[
        Annotated[int, Meta(ge=0, le=255)] | None,
        Meta(description="Higher ones first; only for actions that keep priorities apart."),
    ] = None
    idempotency_key: Annotated[
        Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,255}$")] | None,
        Meta(description="The same key for the same action is the same task, however often it is submitted."),
    ] = None
    after: Annotated[
        Annotated[float, Meta(ge=0, le=MAX_S)] | None, Meta(description="Seconds from now before it may start.")
    ] = None
    at: Annotated[
        Annotated[datetime, Meta(tz=True)] | None, Meta(description="Not to start before; with a time zone.")
    ] = None
    site: Annotated[
        SiteText | None,
        Meta(description="Of a routed task: where whoever submits it stands, for what runs near to it."),
    ] = None


class Submit(_Asked, frozen=True, kw_only=True):
    """One task to submit: of an `action` with `arguments`, or of a `plan` with an `input`."""

    action: ActionText | UnsetType = UNSET
    arguments: Annotated[
        dict[str, Any] | UnsetType, Meta(description="Keyed by parameter.", examples=[{"path": "a.png"}])
    ] = UNSET
    plan: Annotated[
        PlanText | dict[str, Any] | UnsetType,
        Meta(description="The name of a registered plan, or a plan as a plan file says it."),
    ] = UNSET
    input: Annotated[Any, Meta(description="What the plan's steps are given.")] = UNSET
    dispatch: Annotated[
        Literal["pool", "routed"] | UnsetType,
        Meta(description="Who chooses the worker: the first that is free, or a manager. Plans are routed."),
    ] = UNSET
    options: Options = Options()

    def request(self) -> views.Request | RoutedRequest:
        options = views.SubmitOptions(**{name: getattr(self.options, name) for name in Options.__struct_fields__})
        if self.plan is not UNSET:
            self._refuse("plan", "action", "arguments", *(["dispatch"] if self.dispatch == "pool" else []))
            plan = _checked_name(self.plan) if isinstance(self.plan, str) else self.plan
            return RoutedRequest(plan=plan, input={} if self.input is UNSET else self.input, options=options)
        if self.action is UNSET:
            raise SettingError("neither `action` nor `plan` is given; say what to run")
        self._refuse("action", "input")
        arguments = {} if self.arguments is UNSET else self.arguments
        if self.dispatch == "routed":
            return RoutedRequest(action=self.action, input=arguments, options=options)
        return views.Request(action=self.action, arguments=arguments, options=options)

    def _refuse(self, beside: str, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not UNSET:
                raise SettingError(f"`{name}` does not go with `{beside}`; leave one of them out")


SubmitBody = Annotated[Submit, Meta(extra_json_schema={"oneOf": [{"required": ["action"]}, {"required": ["plan"]}]})]


def _checked_name(text: str) -> str:
    try:
        return task_name(text)
    except WrongUse as exc:
        raise SettingError(str(exc)) from exc


class Batch(_Asked, frozen=True, kw_only=True):
    """Tasks to submit, all or none of them."""

    requests: Annotated[list[Submit], Meta(min_length=1, max_length=MAX_BATCH)]


class Redrive(_Asked, frozen=True, kw_only=True):
    """Which dead letters to send again: those of these tasks, or all of an action, or (with neither) all there are."""

    ids: Annotated[list[TaskIdText], Meta(min_length=1, max_length=MAX_BATCH)] | UnsetType = UNSET
    action: ActionText | UnsetType = UNSET


RedriveBody = Annotated[Redrive, Meta(extra_json_schema={"not": {"required": ["ids", "action"]}})]


class CreateToken(_Asked, frozen=True, kw_only=True):
    """A token to make."""

    name: Annotated[str, Meta(pattern=f"^{NAME}$", description="Of the program or person that it is for.")]
    role: Annotated[Role, Meta(description="What whoever shows it may do.")]
    expires_s: Annotated[
        Annotated[float, Meta(gt=0, le=MAX_EXPIRES_S)] | None,
        Meta(description="After how many seconds it opens nothing. Left out, or null: never."),
    ] = None


class WaitQuery(_Asked, frozen=True, kw_only=True):
    wait: Annotated[
        float, Meta(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the end, if it has not ended yet.")
    ] = 0


class _PageQuery(_Asked, frozen=True, kw_only=True):
    action: ActionText | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="Entries on a page.")] = 50
    cursor: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,400}$")] | UnsetType,
        Meta(description="The `next` of the page before. Left out: from the start."),
    ] = UNSET


class TasksQuery(_PageQuery, frozen=True, kw_only=True):
    state: Annotated[State | UnsetType, Meta(description="Only tasks that stand there.")] = UNSET
    outcome: Annotated[Outcome | UnsetType, Meta(description="Only tasks that ended so.")] = UNSET


class DeadQuery(_PageQuery, frozen=True, kw_only=True):
    pass


class ExplainQuery(_Asked, frozen=True, kw_only=True):
    size_bytes: Annotated[int, Meta(ge=0, le=2**40, description="Of the input that it would get.")] = 0
    site: Annotated[SiteText, Meta(description="Where that input would come from, for what runs near to it.")] = ""


class EventsQuery(_Asked, frozen=True, kw_only=True):
    task: TaskIdText | UnsetType = UNSET
    action: ActionText | UnsetType = UNSET
    node: NodeIdText | UnsetType = UNSET


def given(wanted: _Asked) -> dict[str, Any]:
    """What was asked for, without what was left out."""
    pairs = ((name, getattr(wanted, name)) for name in wanted.__struct_fields__)
    return {name: value for name, value in pairs if value is not UNSET}


def task_id(request: Request) -> str:
    """From the path, or `UnknownTask`: what cannot be an id is not looked for."""
    text: str = request.path_params["task_id"]
    if not _TASK_ID.fullmatch(text):
        raise UnknownTask(text)
    return text


def plan_name(request: Request) -> str:
    text: str = request.path_params["name"]
    try:
        return task_name(text)
    except WrongUse:
        raise UnknownPlan(text) from None


def action(request: Request) -> str:
    text: str = request.path_params["action"]
    try:
        return action_name(text)
    except WrongUse:
        raise UnknownAction(text, nodes_offer="it is no action's name, which is <app>.<action>") from None


def node_id(request: Request) -> str:
    text: str = request.path_params["node_id"]
    if not _TASK_ID.fullmatch(text):
        raise UnknownNode(text)
    return text


def token_name(request: Request) -> str:
    text: str = request.path_params["name"]
    if not re.fullmatch(NAME, text):
        raise UnknownToken(text)
    return text


class Body(Generic[T]):
    """Reads bodies of one type."""

    def __init__(self, type_: Any) -> None:
        self.type = type_
        self._codec: Codec[T] = Codec(type_)

    async def read(self, request: Request, *, limit_bytes: int) -> T:
        """The body, or `PayloadTooLarge`, `Undecodable` (not JSON), `TypeMismatch` (of another type), `TooSlow`,
        `WrongContentType`."""
        _require_json(request.headers.get("content-type"))
        body = await bytes_of(request, limit_bytes + MARGIN_BYTES)
        return self._codec.decode(body, None)


def _require_json(content_type: str | None) -> None:
    """Left out is fine."""
    if content_type is not None and content_type.partition(";")[0].strip().lower() != "application/json":
        raise WrongContentType(
            f"content type {content_type!r:.100} is not taken here; send JSON, and say `Content-Type: application/json`"
        )


async def bytes_of(request: Request, limit_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            async for chunk in request.stream():
                size_bytes += len(chunk)
                if size_bytes <= limit_bytes:
                    chunks.append(chunk)
                elif size_bytes > SWALLOWED_BYTES:
                    break
    except TimeoutError:
        raise TooSlow(f"{size_bytes:,} bytes came within {BODY_WITHIN_S:g} s; send less, or faster") from None
    if size_bytes > limit_bytes:
        raise PayloadTooLarge("the request's body", size_bytes, limit_bytes)
    return b"".join(chunks)


def query(request: Request, type_: type[T]) -> T:
    """The query as a struct, or `TypeMismatch`."""
    given = request.query_params
    pairs = given.multi_items()
    if len(pairs) != len(given):
        raise TypeMismatch(wanted=type_.__name__, detail="a parameter is given twice", path="query")
    try:
        return msgspec.convert(dict(pairs), type_, strict=False)
    except msgspec.ValidationError as exc:
        detail, _, path = str(exc).partition(" - at ")
        raise TypeMismatch(wanted=type_.__name__, detail=detail, path=path.strip("`") or "query") from exc
