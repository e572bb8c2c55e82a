"""What the desk tells about routed tasks, plans and nodes, like `views.py` about all tasks. Times are UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - FastAPI reads the annotations
from typing import Any

from canoa.recorder.views import SubmitOptions, TaskView


@dataclass(frozen=True, kw_only=True)
class RoutedRequest:
    """One task for the managers: an action, or a plan (in the form of a plan file, or the name of a registered one).
    `input`: an action's arguments by parameter, or whatever the plan's steps are given."""

    action: str | None = None
    plan: str | dict[str, Any] | None = None
    input: Any = field(default_factory=dict)
    options: SubmitOptions = field(default_factory=SubmitOptions)


# --- The story of a task --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AttemptView:
    """One time a step was sent to a node. `queued_ms`: from when it could have been sent; `travelled_ms`: until the
    node began; `ran_ms`: there. `outcome`: None while it is out; also `returned` and `lost`, which are no attempts of
    the action, and `undone`, of a run before, whose effect was compensated. `passed`: which other nodes were ruled out,
    and by what."""

    attempt: int
    node_id: str
    why: str
    passed: list[str]
    sent_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str | None
    error: str | None
    queued_ms: int | None
    travelled_ms: int | None
    ran_ms: int | None


@dataclass(frozen=True, kw_only=True)
class StepView:
    """`state`: blocked, waiting, sent, ended or skipped. `due_at`: when something happens to it by itself.
    `compensates`: of a compensation, the step whose effect it undoes."""

    name: str
    action: str
    after: list[str]
    state: str
    outcome: str | None
    node_id: str | None
    error: str | None
    ready_at: datetime | None
    due_at: datetime | None
    ended_at: datetime | None
    attempts: list[AttemptView]
    compensates: str | None = None


@dataclass(frozen=True, kw_only=True)
class StoryView:
    """All that happened to a routed task: its steps in the order of its plan, each with its attempts, then the
    compensations that it came to."""

    task: TaskView
    plan: str
    steps: list[StepView]


@dataclass(frozen=True, kw_only=True)
class OutputView:
    """What one step gave; `has_output` is False while it gave nothing."""

    step: StepView
    has_output: bool
    output: Any = None


# --- Plans and nodes --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PlanView:
    """A registered plan. `document`: as a plan file says it."""

    name: str
    task_id: str
    actions: list[str]
    document: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Registered:
    """`is_new`: False when the very same plan was registered under that name. `unoffered`: actions of its steps and
    compensations that no node has ever offered: its tasks are refused until one does."""

    name: str
    task_id: str
    is_new: bool
    unoffered: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """`state`: `here`, `silent` (no sign of life for too long: it gets no work), `unreachable` (it has neither a queue
    nor an address that managers call), `left`, `deaf` (what is sent to it is not answered), `cut_off` (nobody listens
    for it, and it may come back), `dead`, `over-budget` (enough has travelled: it gets no work until `over_budget` is
    over), or `full` (as many steps are out at it as may be: it gets no more until it answers, or they expire). `proof`:
    `online` (it lately answered what was sent to it), `deaf`, `cut_off`, `dead`, or `unproven` (it offers no such
    proof, or has not given it yet). `protocol`: by which it is reached, the preferred one first (`AMQP+MQTT+HTTP`);
    `way`: the one in use, for the manager that was asked; `closed`: those that are not open just now, as the node says.
    `endpoint_refused`: why the manager that was asked does not call its endpoint. `health`: OK, WARNING, DOWN or
    RECOVERING; `action_health`: where one of its actions is not OK. `queued`: steps that are out at it. `sent_bytes`,
    `received_bytes`: bodies of messages to it and of its answers as they travelled, since the manager started that was
    asked. `link_budget`: its own, such as `10MB/day`."""

    id: str
    layer: str
    site: str
    type: str
    protocol: str
    way: str = ""
    closed: list[str] = field(default_factory=list)
    endpoint: str
    labels: dict[str, str]
    actions: list[str]
    state: str
    proof: str = "unproven"
    health: str
    action_health: dict[str, str]
    load: float | None
    queued: int
    registered_at: datetime
    seen_at: datetime
    sent_bytes: int = 0
    received_bytes: int = 0
    link_budget: str = ""
    over_budget: str = ""
    endpoint_refused: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeAccepted:
    """To a node that registered over HTTP, as published."""

    token: str
    nodeId: str  # noqa: N815 - the wire's own name
    actions: list[str]


@dataclass(frozen=True, kw_only=True)
class ResultTaken:
    """To a node that answered over HTTP."""

    taken: bool


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """An action, and who can run it now."""

    action: str
    urn: str
    nodes: list[str]
    layers: list[str]
    timeout_ms: int | None
    retry: int


@dataclass(frozen=True, kw_only=True)
class ConsideredView:
    """A node that offers the action. `score`: lower is better, in the strategy's own measure (turns, attempts that are
    out, or milliseconds); null, and `ruled_out` says why, where it cannot be chosen now."""

    node_id: str
    layer: str
    site: str
    score: float | None
    why: str
    ruled_out: str


@dataclass(frozen=True, kw_only=True)
class ExplainView:
    """Where an attempt would go now. `node_id`: the likeliest; null: nowhere. `considered`: the best first, then those
    that are ruled out. As the manager sees it that answers; others may have sent other attempts. `plan`, `step`: where
    a plan's step was asked about. `note`: what will count besides, and is not known before."""

    action: str
    routing: str
    node_id: str | None
    considered: list[ConsideredView]
    plan: str | None = None
    step: str | None = None
    note: str = ""
