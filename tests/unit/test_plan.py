"""Plans in Python: what is added like calls becomes a plan that can run, and slips are told where they are written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from canoa import Canoa
from canoa.broker import topology
from canoa.broker.port import Broker, Delivery, Message, Publication, Queue
from canoa.errors import ArgumentsRefused, NobodyManages, PlanRefused, SettingError, WrongUse
from canoa.execution import plan as values
from canoa.execution.plan import FromInput, FromStep, Given, Step
from canoa.plan import Plan
from canoa.vocabulary import ActionName, TaskId
from canoa.wire import sapparchi
from canoa.wire.result import success_message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

app = Canoa("continuum", broker="memory://")


@dataclass
class Report:
    text: str
    factor: float


@app.action
async def fetch_data(url: str, *, limit: int = 10) -> dict[str, Any]:
    return {"url": url, "limit": limit}


@app.action
async def power_factor(data: dict[str, Any]) -> float:
    return 0.9


@app.action
async def report(pf: float, data: dict[str, Any]) -> Report:
    return Report("fine", pf)


@app.action
async def clean() -> None: ...


@app.action
async def wait(name: str, timeout: float = 1.0, retry: int = 0) -> None: ...


@app.action
async def total(*numbers: int) -> int:
    return sum(numbers)


@app.action
async def store(what: Report) -> None: ...


@pytest.fixture
def plan() -> Plan:
    return Plan(app, "power-factor")


def the_step(plan: Plan, name: str) -> Step:
    return next(each for each in plan.build().steps if each.name == name)


def test_steps_are_added_like_calls(plan: Plan) -> None:
    data = plan.step(fetch_data, url=plan.input["url"])
    pf = plan.step(power_factor, data)
    plan.step(report, pf, data)

    assert plan.build() == values.Plan(
        name="power-factor",
        steps=(
            Step(name="fetch_data", action=ActionName("continuum.fetch_data"), arguments={"url": FromInput("url")}),
            Step(
                name="power_factor",
                action=ActionName("continuum.power_factor"),
                after=("fetch_data",),
                arguments={"data": FromStep("fetch_data")},
            ),
            Step(
                name="report",
                action=ActionName("continuum.report"),
                after=("power_factor", "fetch_data"),
                arguments={"pf": FromStep("power_factor"), "data": FromStep("fetch_data")},
            ),
        ),
    )


def test_arguments_are_values_keys_and_the_whole_input(plan: Plan) -> None:
    data = plan.step(fetch_data, "http://sensor", limit=3)
    plan.step(report, data["factor"], plan.input)

    assert the_step(plan, "fetch_data").arguments == {"url": Given("http://sensor"), "limit": Given(3)}
    assert the_step(plan, "report").arguments == {"pf": FromStep("fetch_data", "factor"), "data": FromInput()}


def test_a_value_is_kept_as_it_travels(plan: Plan) -> None:
    plan.step(store, Report("fine", 0.5))

    assert the_step(plan, "store").arguments == {"what": Given({"text": "fine", "factor": 0.5})}
    assert msgspec.json.decode(msgspec.json.encode(plan.build()), type=values.Plan) == plan.build()


def test_a_step_says_its_name_its_order_and_its_limits(plan: Plan) -> None:
    data = plan.step(fetch_data, "a")
    pf = plan.step(power_factor, {})
    plan.step(clean, name="last", after=[data, pf], timeout=2.5, retry=0)

    assert the_step(plan, "last") == Step(
        name="last",
        action=ActionName("continuum.clean"),
        after=("fetch_data", "power_factor"),
        arguments={},
        timeout_s=2.5,
        retries=0,
    )


def test_an_action_may_be_there_many_times(plan: Plan) -> None:
    names = [plan.step(fetch_data, "a").name for _ in range(3)]

    assert names == ["fetch_data", "fetch_data-2", "fetch_data-3"]


def test_an_output_can_be_named(plan: Plan) -> None:
    data = plan.step(fetch_data, "a")
    plan.step(power_factor, data)
    plan.output(data)

    assert plan.build().output == "fetch_data"


def test_a_plan_can_grow_after_it_was_built(plan: Plan) -> None:
    plan.step(fetch_data, "a")
    assert len(plan.build().steps) == 1

    plan.step(fetch_data, "b")

    assert len(plan.build().steps) == 2


# --- Actions of other nodes -----------------------------------------------------------------------------


def test_an_action_of_other_nodes_takes_keywords(plan: Plan) -> None:
    data = plan.step("urn:sapparchi:Action:actions.fetch_data", url=plan.input["url"], limit=3)
    plan.step(power_factor, data["values"])

    assert the_step(plan, "fetch_data") == Step(
        name="fetch_data",
        action=ActionName("actions.fetch_data"),
        arguments={"url": FromInput("url"), "limit": Given(3)},
    )


def test_an_action_of_other_nodes_takes_the_whole_of_one_step_or_what_it_waits_for(plan: Plan) -> None:
    first = plan.step("actions.fetch_data", plan.input)
    second = plan.step("actions.fator_potencia", first)
    plan.step("actions.join", after=[first, second])

    assert [(each.after, each.arguments) for each in plan.build().steps] == [
        ((), None),
        (("fetch_data",), None),
        (("fetch_data", "fator_potencia"), None),
    ]


def test_an_action_of_other_nodes_has_no_order_of_parameters(plan: Plan) -> None:
    first = plan.step("actions.fetch_data")

    wrong: list[tuple[Any, ...]] = [("a",), (first, first), (first["k"],)]
    for args in wrong:
        with pytest.raises(WrongUse, match="its parameters have no order: give keywords"):
            plan.step("actions.other", *args)
    with pytest.raises(WrongUse, match="its parameters have no order"):
        plan.step("actions.other", first, x=1)
    with pytest.raises(WrongUse, match="its parameters have no order"):
        plan.step("actions.other", first, after=first)


# --- Slips ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"uri": "a"}, r"there is no parameter 'uri'; did you mean 'url'\? it takes \(url: str"),
        ({"limit": 3}, "parameter 'url' is missing; it takes"),
        ({"url": 7}, "url: Expected `str`, got `int`"),
    ],
)
def test_what_an_action_of_this_program_is_given_by_its_name_is_checked_when_the_plan_is_built(
    plan: Plan, given: dict[str, Any], said: str
) -> None:
    plan.step("continuum.fetch_data", name="first", **given)

    with pytest.raises(PlanRefused, match=f"plan 'power-factor', step 'first': continuum.fetch_data: {said}") as told:
        plan.build()
    assert told.value.step == "first"


def test_an_object_may_be_the_one_parameter_of_an_action_of_this_program(plan: Plan) -> None:
    plan.step("continuum.power_factor", voltage=plan.input["voltage"], current=3)

    assert len(plan.build().steps) == 1


def test_arguments_that_do_not_fit_are_refused_where_they_are_written(plan: Plan) -> None:
    with pytest.raises(ArgumentsRefused, match=r"continuum.fetch_data: missing a required argument: 'url'; it takes"):
        plan.step(fetch_data)
    with pytest.raises(ArgumentsRefused, match="there is no parameter 'uri'; did you mean 'url'\\? it takes"):
        plan.step(fetch_data, "a", uri=plan.input["url"])
    with pytest.raises(ArgumentsRefused, match=r"continuum\.fetch_data: limit: Expected `int`, got `str`"):
        plan.step(fetch_data, plan.input["url"], limit="three")
    with pytest.raises(ArgumentsRefused, match="cannot be sent"):
        plan.step("actions.fetch_data", url=object())
    with pytest.raises(PlanRefused, match="has no steps"):
        plan.build()


def test_a_step_inside_a_list_is_refused(plan: Plan) -> None:
    data = plan.step(fetch_data, "a")

    for hidden in (data, [plan.input], ({"y": data["k"]},)):
        with pytest.raises(PlanRefused, match="inside a list or an object; give it to a parameter of its own"):
            plan.step(power_factor, {"x": hidden})
    with pytest.raises(PlanRefused, match="parameter 'numbers' is given a step"):
        plan.step(total, data, data)


def test_a_list_that_holds_itself_is_refused(plan: Plan) -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(ArgumentsRefused, match="nested too deeply"):
        plan.step("actions.fetch_data", x=endless)


def test_a_step_of_another_plan_is_refused(plan: Plan) -> None:
    other = Plan(app, "other").step(fetch_data, "a")

    with pytest.raises(PlanRefused, match="step 'fetch_data' is of plan 'other'; add it here, too"):
        plan.step(power_factor, other)
    with pytest.raises(PlanRefused, match="is of plan 'other'"):
        plan.output(other)


def test_what_is_no_step_is_refused(plan: Plan) -> None:
    with pytest.raises(PlanRefused, match="'fetch' is no step"):
        plan.step(clean, after=["fetch"])  # type: ignore[list-item]


def test_keys_are_one_text(plan: Plan) -> None:
    data = plan.step(fetch_data, "a")

    with pytest.raises(WrongUse, match="a plan takes one key; let the action take it apart"):
        data["a"]["b"]
    with pytest.raises(WrongUse, match="a key is a text"):
        list(data)  # type: ignore[call-overload]
    with pytest.raises(PlanRefused, match="its output is a whole step's"):
        plan.output(data["a"])


def test_a_keyword_that_may_mean_step_or_parameter_is_refused(plan: Plan) -> None:
    with pytest.raises(WrongUse, match=r"timeout= is about the step, and continuum\.wait has a parameter of that name"):
        plan.step(wait, "a", timeout=3)
    with pytest.raises(WrongUse, match="retry= is about the step"):
        plan.step(wait, "a", retry=0)

    plan.step(wait, "a", 5.0, 0, name="wait-a", timeout=3)

    assert the_step(plan, "wait-a").arguments == {"name": Given("a"), "timeout": Given(5.0), "retry": Given(0)}


@pytest.mark.parametrize(
    ("options", "why"), [({"timeout": 0}, "timeout=0"), ({"timeout": "5"}, "timeout='5'"), ({"retry": -1}, "retry=-1")]
)
def test_limits_that_are_none_are_refused(plan: Plan, options: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingError, match=why):
        plan.step(clean, **options)


def test_names_are_safe_and_used_once(plan: Plan) -> None:
    plan.step(clean, name="a")

    with pytest.raises(PlanRefused, match="two steps named 'a'"):
        plan.step(clean, name="a")
    with pytest.raises(WrongUse, match="cannot be a name"):
        plan.step(clean, name="a b")
    with pytest.raises(WrongUse, match="is not a plan's name"):
        Plan(app, "power factor")


def test_an_app_knows_its_plans_by_name() -> None:
    mine = Canoa("mine", broker="memory://")
    plan = mine.plan("power-factor")

    assert mine.plans == {"power-factor": plan}
    with pytest.raises(PlanRefused, match="plan 'power-factor' is defined twice"):
        mine.plan("urn:sapparchi:Task:power-factor")


# --- Submitting -----------------------------------------------------------------------------------------


class OneAnswer:
    """Plays the managers: takes one request, and answers it."""

    def __init__(self, broker: Broker, body: bytes) -> None:
        self._broker = broker
        self._body = body
        self.taken: list[Message] = []

    async def start(self) -> None:
        await self._broker.open()
        await self._broker.consume(
            topology.TASK_REQUESTS, self._take, prefetch=1, topology=[Queue(name=topology.TASK_REQUESTS)]
        )

    def _take(self, delivery: Delivery) -> None:
        message = delivery.message
        self.taken.append(message)
        result = success_message(TaskId(message.message_id or ""), self._body, "application/json", None)
        self._broker.post(Publication(message=result, key=message.reply_to or ""), lambda outcome: None)
        delivery.settle()


async def submitted(plan: Plan) -> Any:
    return await (await plan.submit(url="http://sensor")).result(timeout=10)


async def called(plan: Plan) -> Any:
    return await plan.call(url="http://sensor")


@pytest.mark.parametrize("way", [submitted, called])
async def test_a_plan_goes_to_the_managers_and_its_result_has_its_type(
    plan: Plan, way: Callable[[Plan], Awaitable[Any]]
) -> None:
    plan.step(report, 0.5, plan.step(fetch_data, url=plan.input["url"]))
    async with app:
        managers = OneAnswer(app.new_broker("test"), b'{"text":"fine","factor":0.5}')
        await managers.start()

        result = await way(plan)

        (message,) = managers.taken
        request = sapparchi.decode(message.body, sapparchi.TaskRequest)
        assert result == Report("fine", 0.5)
        assert (request.task_id, json.loads(request.message_data)) == (
            "urn:sapparchi:Task:power-factor",
            {"url": "http://sensor"},
        )
        assert msgspec.json.decode(str(message.headers[sapparchi.PLAN]), type=values.Plan) == plan.build()


async def test_the_same_key_is_the_same_task(plan: Plan) -> None:
    plan.step(clean)
    async with app:
        await OneAnswer(app.new_broker("test"), b"null").start()

        first, second = [await plan.using(idempotency_key="k").submit() for _ in range(2)]

        assert first.id == second.id


async def test_without_managers_a_plan_is_refused_with_the_remedy() -> None:
    mine = Canoa("mine", broker="memory://")
    lonely = Plan(mine, "lonely")
    lonely.step(clean)

    async with mine:
        with pytest.raises(NobodyManages, match="canoa up"):
            await lonely.submit()
