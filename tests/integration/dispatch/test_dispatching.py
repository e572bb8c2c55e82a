"""Tasks over nodes that know only the published wire: each step runs where it can, and the task ends once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from tests.integration.dispatch.site import eventually, steps_of

from canoa.execution.plan import Plan, Step
from canoa.execution.step_moves import StepState, Verdict
from canoa.vocabulary import ActionName, TaskId
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from tests.integration.dispatch.site import Site


async def test_a_single_action_runs_at_a_node_and_its_result_goes_out_as_it_is(site: Site) -> None:
    manager = await site.start_manager()
    await site.start_node("gw-1", manager, double=lambda value: 2 * value)

    task_id = await site.request("double", data=21, request_id="order-7")

    assert await site.result(task_id) == 42
    assert await site.final(task_id) == {
        "actionTo": "urn:sapparchi:Action:plant.double",
        "requestID": "order-7",
        "messageData": "42",
    }


async def test_each_step_of_a_chain_gets_what_the_one_before_it_gave(site: Site) -> None:
    manager = await site.start_manager()
    await site.start_node("edge", manager, fetch=lambda url: [len(url), 2])
    await site.start_node("cloud", manager, total=sum, report=lambda total: {"total": total})

    task_id = await site.request("fetch", "total", "report", data="abc")

    assert await site.result(task_id) == {"total": 5}
    final = await site.final(task_id)
    assert (final["id"], final["status"], final["output"]) == (task_id, "ok", {"total": 5})
    assert {name: step["node"] for name, step in final["steps"].items()} == {
        "fetch": "edge",
        "total": "cloud",
        "report": "cloud",
    }


async def test_steps_without_dependencies_run_at_once_and_a_join_gets_all_their_results(site: Site) -> None:
    manager = await site.start_manager()
    is_crowded = asyncio.Barrier(10)

    async def part(value: int) -> int:
        await is_crowded.wait()  # none returns before all are there
        return value * value

    await site.start_node("one", manager, split=lambda value: value, part=part, join=lambda parts: sum(parts.values()))
    parts = [f"part-{number}" for number in range(10)]
    plan = {"split": ("split", list[str]()), **{name: ("part", ["split"]) for name in parts}, "join": ("join", parts)}

    task_id = await site.request(data=3, plan=plan, task_id="squares")

    assert await site.result(task_id) == 90


async def test_a_step_that_fails_is_tried_again_and_then_fails_its_task(site: Site) -> None:
    manager = await site.start_manager()
    tries: list[int] = []

    def fragile(value: int) -> int:
        tries.append(value)
        if len(tries) < 3:
            raise ValueError("not yet")
        return value

    def broken(_: Any) -> None:
        raise ValueError("never")

    await site.start_node("gw-1", manager, fragile=fragile, broken=broken)

    assert await site.result(await site.request("fragile", data=7)) == 7
    outcome, error = await site.failure(await site.request(headers=_plan("broken", retries=1)))

    assert len(tries) == 3
    assert outcome == "failed"
    assert "never" in error


async def test_what_depends_on_a_failure_is_skipped_and_the_rest_goes_on(site: Site) -> None:
    manager = await site.start_manager()
    may_fail = asyncio.Event()

    async def fail(_: Any) -> None:
        await may_fail.wait()
        raise ValueError("no power")

    await site.start_node("gw-1", manager, fail=fail, work=lambda value: value)
    steps = (
        Step(name="bad", action=ActionName("plant.fail"), retries=0),
        Step(name="after", action=ActionName("plant.work"), after=("bad",)),
        Step(name="good", action=ActionName("plant.work")),
    )
    plan = Plan(name="mixed", steps=steps)

    task_id = await site.request(data=1, task_id="mixed", headers={sapparchi.PLAN: _packed(plan)})
    await eventually(lambda: _is(manager, task_id, "good", StepState.ENDED))
    may_fail.set()
    outcome, error = await site.failure(task_id)

    assert (outcome, error) == ("failed", "step bad: no power")
    rows = await steps_of(manager, task_id)
    assert {name: row.state for name, row in rows.items()} == {
        "bad": StepState.ENDED,
        "after": StepState.SKIPPED,
        "good": StepState.ENDED,
    }
    assert await manager.manager.store.step_output(TaskId(task_id), rows["good"].step) == b"1"


async def test_a_node_that_never_answers_ends_the_attempt_by_its_time_limit(site: Site) -> None:
    site.app.settings = msgspec.structs.replace(site.app.settings, step_travel_s=0.1)
    manager = await site.start_manager()
    await site.start_node("gw-1", manager, sleep=_never)

    outcome, error = await site.failure(await site.request(headers=_plan("sleep", retries=0, timeout_s=0.1)))

    assert outcome == "timed_out"
    assert "gw-1" in error


async def test_a_backlog_costs_a_healthy_node_neither_attempts_nor_its_good_name(memory_site: Site) -> None:
    site = memory_site
    site.app.settings = msgspec.structs.replace(site.app.settings, step_travel_s=0.3)
    manager = await site.start_manager()
    one_at_a_time = asyncio.Lock()

    async def work(value: int) -> int:
        async with one_at_a_time:
            await asyncio.sleep(0.05)
        return value

    node = await site.start_node("gw-1", manager, work=work)
    plan = _plan("work", retries=0, timeout_s=0.1)
    tasks = [await site.request(data=number, headers=plan) for number in range(40)]

    assert [await site.result(task_id) for task_id in tasks] == list(range(40))
    assert len(node.received) == 40
    assert not manager.manager.nodes.catalogue.breakers


async def test_the_work_of_a_node_that_is_gone_goes_to_another(site: Site) -> None:
    manager = await site.start_manager()
    gone = await site.start_node("gw-1", manager, double=lambda value: 2 * value)
    await gone.vanish()
    await site.start_node("gw-2", manager, double=lambda value: 2 * value)

    task_ids = [await site.request("double", data=number) for number in range(10)]

    assert [await site.result(task_id) for task_id in task_ids] == [2 * number for number in range(10)]
    assert not gone.received


async def test_work_waits_for_a_node_that_offers_its_action_again(site: Site) -> None:
    manager = await site.start_manager()
    gone = await site.start_node("gw-1", manager, double=lambda value: 2 * value)
    await gone.vanish()

    task_id = await site.request("double", data=21)
    await eventually(lambda: _is(manager, task_id, "double", StepState.WAITING))
    await site.start_node("gw-2", manager, double=lambda value: 2 * value)

    assert await site.result(task_id) == 42


async def test_a_cancelled_task_ends_at_once_and_later_answers_change_nothing(site: Site) -> None:
    manager = await site.start_manager()
    may_end = asyncio.Event()

    async def slow(_: Any) -> str:
        await may_end.wait()
        return "too late"

    node = await site.start_node("gw-1", manager, slow=slow)
    task_id = await site.request("slow")
    await eventually(lambda: bool(node.received))

    assert await manager.manager.cancel(TaskId(task_id)) is Verdict.TAKEN
    assert (await site.failure(task_id))[0] == "cancelled"
    may_end.set()
    results = manager.manager.figures.stats.step_results
    await eventually(lambda: results["late"] == 1)
    assert await manager.manager.cancel(TaskId(task_id)) is Verdict.LATE


async def test_a_rerun_runs_only_what_did_not_succeed(site: Site) -> None:
    manager = await site.start_manager()
    is_mended = asyncio.Event()
    runs: list[str] = []

    def first(value: int) -> int:
        runs.append("first")
        return value + 1

    def second(value: int) -> int:
        runs.append("second")
        if not is_mended.is_set():
            raise ValueError("broken")
        return value * 10

    await site.start_node("gw-1", manager, first=first, second=second)
    steps = (
        Step(name="first", action=ActionName("plant.first")),
        Step(name="second", action=ActionName("plant.second"), after=("first",), retries=0),
    )
    packed = _packed(Plan(name="pair", steps=steps))
    task_id = await site.request(data=1, headers={sapparchi.PLAN: packed})
    assert (await site.failure(task_id))[0] == "failed"

    is_mended.set()
    assert await manager.manager.rerun(TaskId(task_id)) is Verdict.TAKEN
    await eventually(lambda: _is(manager, task_id, "second", StepState.ENDED, outcome="ok"))

    assert runs == ["first", "second", "second"]
    result = await manager.manager.store.result(TaskId(task_id))
    assert result is not None
    assert result.body == b"20"


async def test_a_registered_plan_runs_by_its_name(site: Site) -> None:
    manager = await site.start_manager()
    await site.start_node("gw-1", manager, inc=lambda value: value + 1)
    steps = tuple(
        Step(name=name, action=ActionName("plant.inc"), after=after) for name, after in (("a", ()), ("b", ("a",)))
    )
    await manager.manager.store.put_plan(Plan(name="twice", steps=steps), now_ms=0)

    assert await site.result(await site.request(data=5, task_id="twice")) == 7


async def test_the_same_request_again_runs_nothing_twice(site: Site) -> None:
    manager = await site.start_manager()
    node = await site.start_node("gw-1", manager, double=lambda value: 2 * value)

    for _ in range(3):
        await site.request("double", data=21, request_id="order-7")
    assert await site.result("order-7") == 42

    requests = manager.manager.figures.stats
    await eventually(lambda: requests.tasks["ok"] == 1)
    assert len(node.received) == 1


def _plan(action: str, **limits: Any) -> dict[str, Any]:
    step = Step(name=action, action=ActionName(f"plant.{action}"), **limits)
    return {sapparchi.PLAN: _packed(Plan(name=f"plant.{action}", steps=(step,)))}


def _packed(plan: Plan) -> str:
    return msgspec.json.encode(plan).decode()


async def _never(_: Any) -> None:
    await asyncio.Event().wait()


async def _is(manager: Any, task_id: str, step: str, state: StepState, *, outcome: str | None = None) -> bool:
    rows = await steps_of(manager, task_id)
    return step in rows and rows[step].state is state and (outcome is None or rows[step].outcome == outcome)
