"""What the desk tells about routed tasks, plans and nodes, over HTTP and over the broker alike."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.integration.api.world import in_process
from tests.integration.routing_client.plant import WITHIN_S, Plant

from canoa.client.asking import ask
from canoa.errors import NotRouted, TaskRefused, UnknownNode, UnknownPlan
from canoa.recorder.hosting import hosting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

DOCUMENT: dict[str, Any] = {
    "plan": "power-factor",
    "steps": {
        "fetch": {"action": "plant.fetch", "with": {"url": "$input.url"}},
        "total": {"action": "plant.total", "with": {"data": "$fetch"}},
        "report": {"action": "plant.report", "with": {"total": "$total", "values": "$fetch.values"}, "retry": 0},
    },
}


@asynccontextmanager
async def api_of(plant: Plant) -> AsyncIterator[httpx.AsyncClient]:
    async with in_process(plant.app, plant.desk) as api:
        yield api


async def submitted(api: httpx.AsyncClient, **body: Any) -> str:
    answer = await api.post("/api/v1/tasks", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def ended(api: httpx.AsyncClient, task_id: str) -> dict[str, Any]:
    answer = await api.get(f"/api/v1/tasks/{task_id}/result", params={"wait": WITHIN_S})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_plan_in_the_request_runs_and_tells_its_whole_story(plant: Plant) -> None:
    async with api_of(plant) as api:
        task_id = await submitted(api, plan=DOCUMENT, input={"url": "abc"})
        result = await ended(api, task_id)
        story = (await api.get(f"/api/v1/tasks/{task_id}/steps")).json()

    assert (result["result"], result["task"]["action"]) == ("5 of 2", "power-factor")
    assert [(step["name"], step["outcome"], step["after"]) for step in story["steps"]] == [
        ("fetch", "ok", []),
        ("total", "ok", ["fetch"]),
        ("report", "ok", ["total", "fetch"]),
    ]
    for step in story["steps"]:
        [attempt] = step["attempts"]
        assert attempt["why"]
        assert min(attempt["queued_ms"], attempt["travelled_ms"], attempt["ran_ms"]) >= 0


async def test_a_registered_plan_is_shown_as_it_was_written_and_runs_by_its_name(plant: Plant) -> None:
    async with api_of(plant) as api:
        first = await api.put("/api/v1/plans/power-factor", json=DOCUMENT)
        again = await api.put("/api/v1/plans/urn:sapparchi:Task:power-factor", json=DOCUMENT)
        [listed] = (await api.get("/api/v1/plans")).json()
        shown = (await api.get("/api/v1/plans/power-factor")).json()
        task_id = await submitted(api, plan="power-factor", input={"url": "abc"})
        result = await ended(api, task_id)

    assert (first.json()["is_new"], again.json()["is_new"]) == (True, False)
    assert listed == shown
    assert shown["document"] == DOCUMENT
    assert result["result"] == "5 of 2"


async def test_a_mistyped_plan_is_guessed(plant: Plant) -> None:
    guess = "no plan 'powr-factor' is registered here; did you mean power-factor? `canoa plans register"
    async with api_of(plant) as api:
        await api.put("/api/v1/plans/power-factor", json=DOCUMENT)
        submitted = await api.post("/api/v1/tasks", json={"plan": "powr-factor"})
        shown = await api.get("/api/v1/plans/powr-factor")
    with pytest.raises((UnknownPlan, TaskRefused)) as told:  # before it is accepted, or as its result
        await (await (await plant.app.session()).submit_plan("powr-factor", {})).result(WITHIN_S)

    assert (submitted.status_code, shown.status_code) == (404, 404)
    assert guess in submitted.json()["error"]["message"]
    assert guess in shown.json()["error"]["message"]
    assert guess in str(told.value)


async def test_an_action_may_be_routed_over_http(plant: Plant) -> None:
    async with api_of(plant) as api:
        task_id = await submitted(api, action="plant.fetch", arguments={"url": "abc"}, dispatch="routed")

        assert (await ended(api, task_id))["result"] == {"values": [3.0, 2.0]}
        story = (await api.get(f"/api/v1/tasks/{task_id}/steps")).json()

    assert [step["action"] for step in story["steps"]] == ["plant.fetch"]


async def test_a_batch_of_routed_tasks_is_accepted_as_one(memory_plant: Plant) -> None:
    one = {"action": "plant.fetch", "arguments": {"url": "abc"}, "dispatch": "routed"}
    async with api_of(memory_plant) as api:
        done = await api.post("/api/v1/tasks/batch", json={"requests": [one, {**one}, {"plan": DOCUMENT}]})
        mixed = await api.post("/api/v1/tasks/batch", json={"requests": [one, {**one, "dispatch": "pool"}]})
        wrong = await api.post("/api/v1/tasks/batch", json={"requests": [one, {"plan": "nothing"}]})

    assert (done.status_code, len(done.json())) == (201, 3)
    assert (mixed.status_code, mixed.json()["error"]["type"]) == (422, "SettingError")
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (404, "UnknownPlan")


async def test_what_succeeded_stays_visible_and_only_the_rest_is_run_again(plant: Plant) -> None:
    plant.broken.set()
    async with api_of(plant) as api:
        task_id = await submitted(api, plan=DOCUMENT, input={"url": "abc"})
        assert (await ended(api, task_id))["task"]["outcome"] == "failed"
        partial = (await api.get(f"/api/v1/tasks/{task_id}/steps/total")).json()
        nothing = (await api.get(f"/api/v1/tasks/{task_id}/steps/report")).json()
        plant.broken.clear()

        rerun = await api.post(f"/api/v1/tasks/{task_id}/rerun")
        again = await ended(api, task_id)
        refused = await api.post(f"/api/v1/tasks/{task_id}/rerun")

    assert (partial["has_output"], partial["output"]) == (True, 5.0)
    assert nothing["has_output"] is False
    assert (rerun.status_code, rerun.json()["run"]) == (200, 1)
    assert (again["result"], again["task"]["outcome"]) == ("5 of 2", "ok")
    assert plant.runs == ["fetch", "total", "report", "report"]
    assert (refused.status_code, refused.json()["error"]["type"]) == (422, "SettingError")


async def test_a_routed_task_is_cancelled_over_http(plant: Plant) -> None:
    async with api_of(plant) as api:
        task_id = await submitted(api, action="plant.hold", dispatch="routed")
        await asyncio.wait_for(plant.held.wait(), WITHIN_S)

        cancelled = (await api.post(f"/api/v1/tasks/{task_id}/cancel")).json()
        story = (await api.get(f"/api/v1/tasks/{task_id}/steps")).json()

    assert (cancelled["state"], cancelled["outcome"]) == ("ended", "cancelled")
    assert story["steps"][0]["state"] in ("skipped", "ended")


async def test_every_node_and_what_it_offers_is_shown(plant: Plant) -> None:
    async with api_of(plant) as api:
        nodes = (await api.get("/api/v1/nodes")).json()
        one = (await api.get(f"/api/v1/nodes/{nodes[0]['id']}")).json()
        catalogue = (await api.get("/api/v1/catalogue")).json()

    [node] = nodes
    assert (node["layer"], node["protocol"], node["health"], node["state"]) == ("CLOUD", "AMQP", "OK", "here")
    assert set(node["actions"]) == {"plant.fetch", "plant.total", "plant.report", "plant.hold"}
    assert one["id"] == node["id"]
    assert {(entry["action"], *entry["nodes"]) for entry in catalogue} == {
        (action, node["id"]) for action in node["actions"]
    }


PLACED: dict[str, Any] = {
    "plan": "placed",
    "steps": {
        "fetch": {
            "action": "plant.fetch",
            "with": {"url": "$input.url"},
            "placement": {"layers": ["EDGE"]},
            "compensate": "plant.hold",
        },
        "total": {"action": "plant.total", "with": {"data": "$fetch"}, "placement": {"near": "require"}},
    },
}


async def test_one_is_told_where_a_step_of_a_plan_would_go(plant: Plant) -> None:
    async with api_of(plant) as api:
        await api.put("/api/v1/plans/placed", json=PLACED)

        async def explained(step: str, **query: Any) -> dict[str, Any]:
            found = await api.get(f"/api/v1/plans/placed/steps/{step}/explanation", params=query)
            assert found.status_code == 200, found.text
            return dict(found.json())

        action = (await api.get("/api/v1/catalogue/plant.fetch/explanation")).json()
        fetch, total = await explained("fetch"), await explained("total", size_bytes=1000)
        undoing, far = await explained("fetch.compensation"), await explained("total", site="natal")
        over_the_broker = await asked(plant, "explain_step", plan="placed", step="fetch")

    [considered] = fetch["considered"]
    assert (far["node_id"], far["considered"][0]["ruled_out"]) == (
        None,
        "it is not in natal, where the input comes from",
    )
    assert far["note"] == "as if what it gets came from natal"
    assert (fetch["plan"], fetch["step"], fetch["action"]) == ("placed", "fetch", "plant.fetch")
    assert (fetch["node_id"], considered["ruled_out"]) == (None, "the step may run in EDGE")
    assert fetch["note"] == ""
    assert over_the_broker == fetch
    assert action["node_id"] == total["node_id"] == undoing["node_id"] == considered["node_id"]
    assert (action["plan"], action["step"]) == (None, None)
    assert total["note"] == "only nodes of the site where fetch ran will do; which one that is, is not known before"
    assert undoing["action"] == "plant.hold"


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("nothing/steps/fetch", 404, "no plan 'nothing' is registered"),
        ("placed/steps/nothing", 422, "it has fetch, total, fetch.compensation"),
        ("placed/steps/total.compensation", 422, "has no step 'total.compensation'"),
    ],
)
async def test_a_step_that_is_not_there_is_not_explained(
    memory_plant: Plant, path: str, status: int, said: str
) -> None:
    async with api_of(memory_plant) as api:
        await api.put("/api/v1/plans/placed", json=PLACED)
        refused = await api.get(f"/api/v1/plans/{path}/explanation")

    assert refused.status_code == status, refused.text
    assert said in refused.json()["error"]["message"]


async def test_a_node_hears_that_the_manager_is_up(plant: Plant) -> None:
    async with api_of(plant) as api:
        asked = await api.get("/actuator/health", headers={"Authorization": ""})

    assert (asked.status_code, asked.json()) == (200, {"status": "UP"})


async def test_steps_are_among_the_events(plant: Plant) -> None:
    kinds: list[tuple[str, str | None]] = []

    async def listen() -> None:
        async for event in plant.desk.events():
            kinds.append((event.kind, event.step))
            if event.kind == "ended":
                return

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    await plant.plan.call(url="abc")
    await asyncio.wait_for(listening, WITHIN_S)

    assert [each for each in kinds if each[0] == "step_ended"] == [
        ("step_ended", "fetch"),
        ("step_ended", "total"),
        ("step_ended", "report"),
    ]
    assert ("step_sent", "fetch") in kinds


def undone_by(action: str) -> dict[str, Any]:
    return {"plan": "undone", "steps": {"fetch": {"action": "plant.fetch", "compensate": action}}}


def fetching(**arguments: Any) -> dict[str, Any]:
    return {"plan": "fetching", "steps": {"fetch": {"action": "plant.fetch", "with": arguments}}}


async def test_what_no_node_ever_offered_is_told_when_a_plan_is_registered(plant: Plant) -> None:
    async with api_of(plant) as api:
        early = await api.put("/api/v1/plans/undone", json=undone_by("later.drop"))
        known = await api.put("/api/v1/plans/undone", json=undone_by("plant.hold"))
        unfit = await api.put("/api/v1/plans/undone", json=undone_by("plant.report"))

    assert (early.status_code, early.json()["unoffered"]) == (200, ["later.drop"])
    assert (known.status_code, known.json()["unoffered"]) == (200, [])
    assert (unfit.status_code, unfit.json()["error"]["type"]) == (422, "PlanRefused")


# --- Refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 422, "neither `action` nor `plan`"),
        ({"plan": "nothing"}, 404, "'nothing'"),
        ({"plan": "not a name"}, 422, "is not a plan's name"),
        ({"plan": {"plan": "p", "steps": {}}}, 422, "has no steps"),
        ({"plan": {"plan": "p", "steps": {"a": {"action": "x.y", "after": ["b"]}}}}, 422, "'b'"),
        ({"plan": {"plan": "p", "steps": {"a": {"action": "nobody.offers"}}}}, 404, "nobody.offers"),
        (
            {"action": "plant.fetch", "arguments": {"ulr": "abc"}, "dispatch": "routed"},
            422,
            "plant.fetch: there is no parameter 'ulr'; did you mean 'url'? it takes (url: str)",
        ),
        ({"action": "plant.fetch", "arguments": {"url": 7}, "dispatch": "routed"}, 422, "Expected `str`, got `int`"),
        (
            {"plan": fetching(ulr="abc")},
            422,
            "plant.fetch: there is no parameter 'ulr'; did you mean 'url'? it takes (url: str)",
        ),
        ({"plan": fetching(url=7)}, 422, "plan 'fetching', step 'fetch': plant.fetch: url: Expected `str`, got `int`"),
        ({"plan": DOCUMENT, "action": "plant.fetch"}, 422, "`action` does not go with `plan`"),
        ({"plan": DOCUMENT, "dispatch": "pool"}, 422, "`dispatch` does not go with `plan`"),
        ({"plan": DOCUMENT, "options": {"timeout": 5}}, 422, "steps have limits of their own"),
        ({"action": "plant.fetch", "input": {}}, 422, "`input` does not go with `action`"),
        (
            {"action": "plant.fetch", "arguments": {"url": "a"}, "options": {"site": "natal"}},
            422,
            "add dispatch='routed'",
        ),
        ({"plan": DOCUMENT, "options": {"site": "x" * 129}}, 422, "site"),
        ({"plan": undone_by("nobody.offers")}, 404, "no node has ever offered action 'nobody.offers'"),
        ({"plan": undone_by("plant.report")}, 422, "plant.report cannot compensate a step: it takes (total: "),
        ({"plan": undone_by("plant.fetch")}, 422, "its own action, which would do it again"),
        ({"action": "nobody.offers", "dispatch": "routed"}, 404, "nodes offer plant.fetch, plant.hold, plant.report"),
        ({"action": "plant.fetsh", "dispatch": "routed"}, 404, "did you mean plant.fetch?"),
        ({"plan": {"plan": "p", "steps": {"a": {"action": "plant.totl"}}}}, 404, "did you mean plant.total"),
        ({"action": "plant.fetch", "dispatch": "routed", "options": {"after": 5}}, 422, "a routed task has none"),
    ],
)
async def test_what_cannot_be_routed_is_refused_with_its_remedy(
    memory_plant: Plant, body: dict[str, Any], status: int, said: str
) -> None:
    async with api_of(memory_plant) as api:
        refused = await api.post("/api/v1/tasks", json=body)

    assert refused.status_code == status, refused.text
    assert said in refused.json()["error"]["message"]


async def test_what_is_not_there_is_not_found(memory_plant: Plant) -> None:
    pool = await memory_plant.fetch.using(result="keep").submit("abc")
    await pool.result(WITHIN_S)
    async with api_of(memory_plant) as api:
        answers = [
            await api.get(f"/api/v1/tasks/{pool.id}/steps"),
            await api.get("/api/v1/nodes/nobody"),
            await api.get("/api/v1/plans/nothing"),
        ]

    assert [(each.status_code, each.json()["error"]["type"]) for each in answers] == [
        (404, "NotRouted"),
        (404, "UnknownNode"),
        (404, "UnknownPlan"),
    ]


async def test_a_plan_is_registered_under_its_own_name(memory_plant: Plant) -> None:
    async with api_of(memory_plant) as api:
        refused = await api.put("/api/v1/plans/another", json=DOCUMENT)

    assert (refused.status_code, refused.json()["error"]["type"]) == (422, "SettingError")


# --- Over the broker ------------------------------------------------------------------------------------


async def asked(plant: Plant, name: str, /, **arguments: Any) -> Any:
    return await ask(plant.app, name, msgspec.json.encode(arguments), is_routed=True)


async def test_the_same_questions_are_answered_over_the_broker(plant: Plant) -> None:
    done = await asked(plant, "route", plan=DOCUMENT, input={"url": "abc"})
    assert await plant.app.handle(done["id"]).result(WITHIN_S) == "5 of 2"

    story = await asked(plant, "story", task_id=done["id"])
    output = await asked(plant, "output", task_id=done["id"], step="total")
    registered = await asked(plant, "register", name="power-factor", document=DOCUMENT)

    assert [step["outcome"] for step in story["steps"]] == ["ok", "ok", "ok"]
    assert output["output"] == 5.0
    assert registered["is_new"] is True
    assert (await asked(plant, "plan", name="power-factor"))["document"] == DOCUMENT
    assert [node["layer"] for node in await asked(plant, "nodes")] == ["CLOUD"]


@pytest.mark.rabbitmq
async def test_a_recorder_without_a_manager_passes_a_cancellation_on(rabbit_url: str, tmp_path: Path) -> None:
    async with Plant(rabbit_url, tmp_path) as plant:
        await plant.start()
        handle = await plant.hold.using(dispatch="routed").submit()
        await asyncio.wait_for(plant.held.wait(), WITHIN_S)
        async with hosting(plant.app, plant.store_url) as recorder:
            cancelled = await recorder.desk.cancel(handle.id)
            story = await plant.desk.story(handle.id)

    assert (cancelled.state, cancelled.outcome) == ("ended", "cancelled")
    assert story.steps[0].state != "sent"


async def test_refusals_over_the_broker_are_the_desks_own(memory_plant: Plant) -> None:
    pool = await memory_plant.fetch.using(result="keep").submit("abc")
    await pool.result(WITHIN_S)

    with pytest.raises(UnknownPlan):
        await asked(memory_plant, "plan", name="nothing")
    with pytest.raises(UnknownNode):
        await asked(memory_plant, "node", node_id="nobody")
    with pytest.raises(NotRouted):
        await asked(memory_plant, "story", task_id=pool.id)
