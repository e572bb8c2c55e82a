"""What the API makes of requests about tasks and dead letters, and of what the desk says."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from canoa.recorder.views import Request, SubmitOptions

if TYPE_CHECKING:
    import httpx
    from tests.integration.api.paper_desk import PaperDesk

TASKS = "/api/v1/tasks"
RESIZE = {"action": "shop.resize", "arguments": {"path": "a.png"}}


async def submitted(api: httpx.AsyncClient) -> str:
    answer = await api.post(TASKS, json=RESIZE)
    assert answer.status_code == 201
    task_id: str = answer.json()["id"]
    return task_id


# --- Submitting -----------------------------------------------------------------------------------------


async def test_a_task_is_accepted_with_its_id(api: httpx.AsyncClient, desk: PaperDesk) -> None:
    answer = await api.post(TASKS, json=RESIZE)

    assert answer.status_code == 201
    assert answer.json() == {"id": answer.json()["id"], "action": "shop.resize", "is_new": True}
    assert desk.requests == [Request(action="shop.resize", arguments={"path": "a.png"})]


async def test_every_option_reaches_the_desk(api: httpx.AsyncClient, desk: PaperDesk) -> None:
    options = {
        "timeout": 5,
        "retry": 3,
        "queue_timeout": 60.5,
        "priority": 2,
        "idempotency_key": "order-17",
        "after": 0.5,
        "at": "2030-01-01T12:00:00+01:00",
    }

    assert (await api.post(TASKS, json={"action": "shop.pay", "options": options})).status_code == 201

    (request,) = desk.requests
    at = datetime(2030, 1, 1, 11, tzinfo=UTC)
    assert request.options == SubmitOptions(**{**options, "at": at})  # type: ignore[arg-type]


async def test_a_batch_is_accepted_in_its_order(server: httpx.AsyncClient, desk: PaperDesk) -> None:
    requests = [{"action": "shop.resize", "arguments": {"width": width}} for width in range(1000)]

    answer = await server.post(f"{TASKS}/batch", json={"requests": requests})

    assert answer.status_code == 201
    assert len({each["id"] for each in answer.json()}) == 1000
    assert [request.arguments["width"] for request in desk.requests] == list(range(1000))


async def test_a_batch_with_one_refusal_is_refused_as_a_whole(api: httpx.AsyncClient, desk: PaperDesk) -> None:
    answer = await api.post(f"{TASKS}/batch", json={"requests": [RESIZE, {"action": "depot.weigh"}]})

    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "UnknownAction")
    assert desk.requests == []


# --- Results ----------------------------------------------------------------------------------------------


async def test_a_task_that_has_not_ended_is_told_with_202(api: httpx.AsyncClient) -> None:
    task_id = await submitted(api)

    answer = await api.get(f"{TASKS}/{task_id}/result")

    assert answer.status_code == 202
    assert answer.json()["task"]["state"] == "waiting"
    assert answer.json()["result"] is None


async def test_a_long_poll_answers_as_soon_as_the_task_ends(server: httpx.AsyncClient, desk: PaperDesk) -> None:
    task_id = await submitted(server)
    polling = asyncio.create_task(server.get(f"{TASKS}/{task_id}/result", params={"wait": 60}))
    await desk.waited.wait()

    desk.end(task_id, result={"path": "a-100.png", "bytes": 1.5})

    async with asyncio.timeout(5):
        answer = await polling
    assert answer.status_code == 200
    assert answer.json()["result"] == {"path": "a-100.png", "bytes": 1.5}
    assert answer.json()["task"]["ended_at"] == "2025-06-01T12:30:00Z"


async def test_a_long_poll_ends_after_its_time_with_how_it_stands(api: httpx.AsyncClient) -> None:
    task_id = await submitted(api)

    answer = await api.get(f"{TASKS}/{task_id}/result", params={"wait": 0.05})

    assert answer.status_code == 202


async def test_a_failure_is_an_answer_like_any_other(api: httpx.AsyncClient, desk: PaperDesk) -> None:
    task_id = await submitted(api)
    desk.end(task_id, outcome="failed", error_type="ValueError", traceback="Traceback …")

    answer = await api.get(f"{TASKS}/{task_id}/result")

    assert answer.status_code == 200
    assert answer.json()["task"]["outcome"] == "failed"
    assert answer.json()["error_type"] == "ValueError"


async def test_a_result_that_json_cannot_carry_is_refused_with_the_remedy(
    api: httpx.AsyncClient, desk: PaperDesk
) -> None:
    task_id = await submitted(api)
    desk.end(task_id, result={1.5: "a key that is a number", ("a", "pair"): 0})

    answer = await api.get(f"{TASKS}/{task_id}/result")

    assert answer.status_code == 406
    assert "Python client" in answer.json()["error"]["message"]


async def test_cancelling_gives_how_it_stands_then(api: httpx.AsyncClient) -> None:
    task_id = await submitted(api)

    answer = await api.post(f"{TASKS}/{task_id}/cancel")

    assert (answer.status_code, answer.json()["outcome"]) == (200, "cancelled")
    assert (await api.get(f"{TASKS}/{task_id}")).json() == answer.json()


@pytest.mark.parametrize("path", ["{id}", "{id}/result", "../dead/{id}"])
async def test_an_unknown_id_is_not_found(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.get(f"{TASKS}/{path.format(id='0192f0c1a7b27c3e9d5e4f60718293a4')}")

    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "UnknownTask")


# --- Lists ------------------------------------------------------------------------------------------------


async def test_filters_and_cursor_reach_the_desk(api: httpx.AsyncClient, desk: PaperDesk) -> None:
    wanted: dict[str, Any] = {
        "action": "shop.resize",
        "state": "ended",
        "outcome": "failed",
        "limit": 500,
        "cursor": "abc",
    }

    assert (await api.get(TASKS, params=wanted)).status_code == 200

    assert desk.asked == wanted


async def test_a_page_of_dead_letters_says_where_the_next_one_starts(api: httpx.AsyncClient, desk: PaperDesk) -> None:
    answer = await api.get("/api/v1/dead", params={"limit": 3})

    assert answer.json() == {"letters": [], "next": "further"}
    assert desk.asked == {"limit": 3}


@pytest.mark.parametrize(
    ("body", "redriven"),
    [
        ({"ids": ["a", "b"]}, ["a", "b"]),
        ({"action": "shop.resize"}, ["all of shop.resize"]),
        ({}, ["all of None"]),
    ],
)
async def test_letters_are_redriven_by_id_by_action_or_all(
    api: httpx.AsyncClient, body: dict[str, Any], redriven: list[str]
) -> None:
    answer = await api.post("/api/v1/dead/redrive", json=body)

    assert answer.json() == {"redriven": redriven, "skipped": []}


async def test_actions_are_listed(api: httpx.AsyncClient) -> None:
    (action,) = (await api.get("/api/v1/actions")).json()

    assert action["action"] == "shop.resize"
