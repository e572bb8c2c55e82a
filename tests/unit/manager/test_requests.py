"""What a request asks for: from its body, its headers and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from canoa.broker.port import HeaderValue, Message
from canoa.errors import PayloadTooLarge, PlanRefused, Undecodable
from canoa.execution.plan import Plan, Step
from canoa.manager import requests
from canoa.vocabulary import ActionName
from canoa.wire import sapparchi, task, trace
from canoa.wire.ids import new_task_id

if TYPE_CHECKING:
    from canoa.manager.requests import Request

NOW_MS = 1_700_000_000_000
URN = "urn:sapparchi:Action:plant.double"


def read(headers: dict[str, HeaderValue] | None = None, **fields: Any) -> Request:
    body = msgspec.json.encode({"id": "order-7", "target_actions": [URN], "message_data": "[1, 2]"} | fields)
    message = Message(body=body, headers=headers or {}, reply_to="caller")
    return requests.read(message, NOW_MS, limit_bytes=1000)


def test_a_single_action_is_named_after_itself() -> None:
    request = read()

    assert request.plan == Plan(name="plant.double", steps=(Step(name="double", action=ActionName("plant.double")),))
    assert (request.task.id, request.task.action, request.task.reply_to) == ("order-7", "plant.double", "caller")
    assert request.task.message.body == b"[1, 2]"


def test_several_actions_are_a_chain() -> None:
    plan = read(target_actions=[URN, URN], task_id="urn:sapparchi:Task:twice").plan

    assert plan is not None
    assert plan.name == "twice"
    assert [(step.name, step.after) for step in plan.steps] == [("double", ()), ("double-2", ("double",))]


def test_a_plan_that_is_sent_along_counts_before_a_list_of_actions() -> None:
    step = Step(name="one", action=ActionName("plant.other"), retries=0)
    packed = msgspec.json.encode(Plan(name="own", steps=(step,))).decode()

    plan = read({sapparchi.PLAN: packed}).plan

    assert plan is not None
    assert (plan.name, plan.steps) == ("own", (step,))


def test_a_name_alone_means_the_registered_plan() -> None:
    request = read(target_actions=[], task_id="urn:sapparchi:Task:power-factor")

    assert (request.plan, request.plan_name) == (None, "power-factor")


@pytest.mark.parametrize("asks", ["an action", "a plan sent along", "a task_plan", "a registered plan"])
def test_where_the_caller_stands_is_in_the_tasks_plan(asks: str) -> None:
    registered = Plan(name="own", steps=(Step(name="one", action=ActionName("plant.other")),))
    smuggled = msgspec.json.encode(msgspec.structs.replace(registered, site="recife")).decode()
    ways: dict[str, tuple[dict[str, HeaderValue], dict[str, Any]]] = {
        "an action": ({}, {}),
        "a plan sent along": ({sapparchi.PLAN: smuggled}, {}),
        "a task_plan": ({}, {"task_id": "own", "task_plan": [{"step": "one", "action": URN}]}),
        "a registered plan": ({}, {"task_id": "own", "target_actions": []}),
    }
    header, fields = ways[asks]

    for said, site in (("natal", "natal"), (None, ""), (7, ""), ("na\ntal", ""), ("x" * 129, "")):
        request = read({sapparchi.SITE: said, **header}, **fields)
        begun = requests.begin(request, request.plan or registered, NOW_MS)

        assert begun.plan.site == site
        assert sapparchi.SITE not in begun.task.message.headers


def test_of_the_headers_only_the_trace_and_the_deadline_go_on() -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    request = read({trace.TRACEPARENT: traceparent, task.DEADLINE: NOW_MS, "x-death": "much", "nodeId": "gw-1"})

    assert request.task.message.headers == {trace.TRACEPARENT: traceparent, task.DEADLINE: NOW_MS}


@pytest.mark.parametrize("deadline", ["soon", -1, 2**60, 1.5, None, True])
def test_a_deadline_that_is_none_is_refused(deadline: HeaderValue) -> None:
    with pytest.raises(Undecodable):
        read({task.DEADLINE: deadline})


@pytest.mark.parametrize(
    ("created_at", "submitted_ms"),
    [(NOW_MS - 5, NOW_MS - 5), (NOW_MS + 5, NOW_MS), (0, NOW_MS), (NOW_MS // 1000, NOW_MS), (-7, NOW_MS)],
)
def test_nothing_was_submitted_in_the_future_or_long_ago(created_at: int, submitted_ms: int) -> None:
    assert read(created_at=created_at).task.submitted_ms == submitted_ms


def test_an_id_of_ours_tells_when_it_was_submitted_unless_a_clock_is_wrong() -> None:
    assert read(id=new_task_id()).task.submitted_ms == NOW_MS  # made long after this test's now


@pytest.mark.parametrize("request_id", ["", "x" * 129, "\N{SNOWMAN}" * 67, "line\nbreak", "null\x00"])
def test_an_id_that_nobody_could_ask_for_is_refused(request_id: str) -> None:
    with pytest.raises(Undecodable):
        read(id=request_id)


def test_the_longest_id_makes_request_ids_that_a_message_can_carry() -> None:
    task_id = read(id="\N{SNOWMAN}" * 66).task.id

    assert len(sapparchi.request_id(task_id, 10**9 - 1, 10**9 - 1, 10**9 - 1).encode()) <= 255


@pytest.mark.parametrize("created_at", [None, "2025-01-01T00:00:00Z", 1.5, 1e300, -0.5, 10**30])
def test_a_time_in_another_form_is_as_good_as_none(created_at: Any) -> None:
    assert read(created_at=created_at, processing_time=None).task.submitted_ms == NOW_MS


def test_a_time_with_a_fraction_is_one() -> None:
    assert read(created_at=NOW_MS - 4.5).task.submitted_ms == NOW_MS - 5


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "identity", ""])
def test_the_encoding_of_its_text_is_no_compression(encoding: str) -> None:
    body = msgspec.json.encode({"id": "order-7", "target_actions": [URN]})

    assert requests.read(Message(body=body, content_encoding=encoding), NOW_MS, limit_bytes=1000).task.id == "order-7"


@pytest.mark.parametrize(
    ("body", "request_id"),
    [
        (b'{"id": "order-7", "task_plan": 1}', "order-7"),
        (b'{"task_plan": {"id": "inner"}, "id": "order-7"}', "order-7"),
        (b'{"id": 7}', "7"),
        (b'{"id": true}', "named"),
        (b'{"id": "line\\nbreak"}', "named"),
        (b"{", "named"),
        (b"[" * 5000, "named"),
    ],
)
def test_what_is_refused_is_named_by_its_body_or_else_its_message(body: bytes, request_id: str) -> None:
    assert requests.readable_id(Message(body=body, message_id="named"), 1000) == request_id


def test_input_over_the_limit_is_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        read(message_data=msgspec.json.encode("x" * 1000).decode())


def test_a_request_without_any_plan_is_refused() -> None:
    with pytest.raises(PlanRefused, match="names no plan"):
        read(target_actions=[])
