"""A routed submit is a request as published; what a caller asks for besides is in headers."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest

from canoa.action import Options
from canoa.broker import topology
from canoa.client import routed
from canoa.errors import ArgumentsRefused, PayloadTooLarge, SettingError
from canoa.execution.plan import FromInput, Plan, Step
from canoa.vocabulary import ActionName
from canoa.wire import sapparchi, task

FETCH = ActionName("continuum.fetch")
PLAN = Plan(name="power-factor", steps=(Step(name="fetch", action=FETCH, arguments={"url": FromInput("url")}),))
ROUTED = Options(dispatch="routed")


def of_action(options: Options = ROUTED, body: bytes = b'{"url": "a"}', limit_bytes: int = 1000, site: str = "") -> Any:
    return routed.of_action(FETCH, body, options, routed.Caller("mine", limit_bytes, site))


def of_plan(plan: Plan | str, input: Any = None, options: Options = ROUTED, site: str = "") -> Any:
    return routed.of_plan(plan, input, options, routed.Caller("mine", 1000, site))


def test_an_action_is_a_request_for_one_target_action() -> None:
    sent = of_action()

    request = json.loads(sent.message.body)
    assert (sent.exchange, sent.key, sent.mandatory) == ("", topology.TASK_REQUESTS, True)
    assert request["target_actions"] == ["urn:sapparchi:Action:continuum.fetch"]
    assert json.loads(request["message_data"]) == {"url": "a"}
    assert abs(request["created_at"] - time.time() * 1000) < 10_000
    assert request["id"] == sent.message.message_id
    assert (sent.message.reply_to, sent.message.type) == ("mine", "continuum.fetch")
    assert sapparchi.PLAN not in sent.message.headers


def test_limits_of_one_submit_travel_as_a_plan_of_one_step() -> None:
    sent = of_action(Options(dispatch="routed", timeout=2.5, retry=0))

    plan = msgspec.json.decode(sent.message.headers[sapparchi.PLAN], type=Plan)
    step = Step(name="fetch", action=FETCH, timeout_s=2.5, retries=0)
    assert plan == Plan(name="continuum.fetch", steps=(step,))


def test_a_queue_timeout_travels_as_a_deadline() -> None:
    deadline_ms = of_action(Options(dispatch="routed", queue_timeout=60)).message.headers[task.DEADLINE]

    assert abs(deadline_ms - (time.time() + 60) * 1000) < 10_000


def test_a_plan_travels_with_its_task() -> None:
    sent = of_plan(PLAN, {"url": "a"})

    request = json.loads(sent.message.body)
    assert request["task_id"] == "urn:sapparchi:Task:power-factor"
    assert json.loads(request["message_data"]) == {"url": "a"}
    assert msgspec.json.decode(sent.message.headers[sapparchi.PLAN], type=Plan) == PLAN


def test_a_registered_plan_is_named_and_does_not_travel() -> None:
    sent = of_plan("power-factor", [1, 2])

    assert json.loads(sent.message.body)["task_id"] == "urn:sapparchi:Task:power-factor"
    assert sapparchi.PLAN not in sent.message.headers


def test_the_same_idempotency_key_is_the_same_task() -> None:
    keyed = Options(dispatch="routed", idempotency_key="monday")

    assert of_action(keyed).message.message_id == of_action(keyed).message.message_id
    assert of_action(keyed).message.message_id != of_plan("continuum.fetch", options=keyed).message.message_id
    assert of_action().message.message_id != of_action().message.message_id


def test_nobody_is_answered_where_nobody_waits() -> None:
    assert of_action(Options(dispatch="routed", result="none")).message.reply_to is None


def test_what_a_caller_waits_for_is_not_put_on_disk() -> None:
    assert of_action().message.persistent
    assert not of_action(Options(dispatch="routed", is_awaited=True)).message.persistent


def test_what_is_too_large_is_refused_before_it_is_sent() -> None:
    steps = tuple(Step(name=f"step-{n}", action=FETCH) for n in range(2000))

    with pytest.raises(PayloadTooLarge, match=r"arguments of continuum\.fetch"):
        of_action(limit_bytes=3)
    with pytest.raises(PayloadTooLarge, match="canoa plans register"):
        of_plan(Plan(name="long", steps=steps))


def test_an_input_that_cannot_travel_is_refused() -> None:
    with pytest.raises(ArgumentsRefused, match="the input of plan power-factor"):
        of_plan(PLAN, object())


@pytest.mark.parametrize("given", [{"priority": 1}, {"after": 1.0}])
def test_what_no_manager_does_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="a routed task has none"):
        Options(dispatch="routed", **given)


def test_another_dispatch_is_refused() -> None:
    with pytest.raises(SettingError, match="dispatch='direct': use 'pool', or 'routed'"):
        Options(dispatch="direct")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of_program", "of_call", "told"), [("natal", None, "natal"), ("natal", "recife", "recife"), ("natal", "", None)]
)
def test_where_the_caller_stands_travels_with_the_request(of_program: str, of_call: str | None, told: Any) -> None:
    options = Options(dispatch="routed", site=of_call)

    for sent in (of_action(options, site=of_program), of_plan(PLAN, {}, options, site=of_program)):
        assert sent.message.headers.get(sapparchi.SITE) == told


def test_who_says_nothing_sends_what_was_always_sent() -> None:
    assert sapparchi.SITE not in of_action().message.headers


@pytest.mark.parametrize("site", ["x" * 129, "na\ntal"])
def test_a_site_that_cannot_be_is_refused(site: str) -> None:
    with pytest.raises(SettingError, match="site"):
        Options(dispatch="routed", site=site)


def test_the_pool_has_no_sites() -> None:
    with pytest.raises(SettingError, match="add dispatch='routed'"):
        Options(site="natal")
