"""The API over a real desk: worker, recorder and SQLite file as `canoa up` puts them together, on both brokers."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed
from tests.integration.api.world import TOKEN, listening
from tests.integration.keep.keeping import Keeping

from canoa.broker.events import Events
from canoa.wire.event import Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

    from canoa.store.port import TaskRow
    from canoa.vocabulary import TaskId

TASKS = "/api/v1/tasks"


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Keeping]:
    url = "memory://" if request.param == "memory" else request.getfixturevalue("rabbit_url")
    async with Keeping(url, tmp_path) as keeping:

        @keeping.app.action()
        async def resize(path: str, *, width: int = 100) -> str:
            return f"{path}-{width}"

        @keeping.app.action()
        async def fail(reason: str) -> None:
            raise ValueError(reason)

        @keeping.app.action()
        async def wait_for_ever() -> None:
            await asyncio.Event().wait()

        await keeping.start()
        yield keeping


@pytest.fixture
async def client(shop: Keeping) -> AsyncIterator[httpx.AsyncClient]:
    async with listening(shop.app, shop.desk) as client:
        yield client


async def submitted(client: httpx.AsyncClient, action: str, **arguments: Any) -> str:
    answer = await client.post(TASKS, json={"action": action, "arguments": arguments})
    assert answer.status_code == 201, answer.text
    task_id: str = answer.json()["id"]
    return task_id


async def result(client: httpx.AsyncClient, task_id: str) -> Any:
    answer = await client.get(f"{TASKS}/{task_id}/result", params={"wait": 10})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_task_is_submitted_run_and_its_result_fetched(client: httpx.AsyncClient) -> None:
    task_id = await submitted(client, "shop.resize", path="a.png")

    told = await result(client, task_id)

    assert told["result"] == "a.png-100"
    assert told["task"]["outcome"] == "ok"
    assert (await client.get(TASKS)).json()["tasks"] == [told["task"]]


async def test_arguments_that_do_not_fit_are_refused_before_anything_is_stored(client: httpx.AsyncClient) -> None:
    for arguments in ({}, {"path": 7}, {"path": "a", "width": "wide"}):
        answer = await client.post(TASKS, json={"action": "shop.resize", "arguments": arguments})

        assert (answer.status_code, answer.json()["error"]["type"]) == (422, "ArgumentsRefused")
        assert "it takes (path: str" in answer.json()["error"]["message"]
    assert (await client.get(TASKS)).json() == {"tasks": [], "next": None}


@pytest.mark.parametrize(
    "options",
    [
        {"at": "0001-01-01T00:00:00+14:00"},
        {"at": "9999-12-31T23:59:59-14:00"},
        {"at": "1970-01-01T00:00:00Z", "after": 315_360_000},
        {"after": 1e-300, "timeout": 1e-300, "queue_timeout": 1e-300},
        {"retry": 2**31 - 1, "priority": 255},
    ],
)
async def test_an_option_at_its_limit_is_taken_or_refused(client: httpx.AsyncClient, options: dict[str, Any]) -> None:
    body = {"action": "shop.resize", "arguments": {"path": "a"}, "options": options}

    assert (await client.post(TASKS, json=body)).status_code in (201, 422)


async def test_an_action_that_nobody_offers_is_not_found(client: httpx.AsyncClient) -> None:
    answer = await client.post(TASKS, json={"action": "depot.weigh"})

    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "UnknownAction")


async def test_the_same_key_is_the_same_task(client: httpx.AsyncClient) -> None:
    body = {"action": "shop.resize", "arguments": {"path": "a"}, "options": {"idempotency_key": "once"}}

    first, second = [(await client.post(TASKS, json=body)).json() for _ in range(2)]

    assert first["id"] == second["id"]
    assert (first["is_new"], second["is_new"]) == (True, False)


async def test_pages_follow_each_other_without_gaps(client: httpx.AsyncClient) -> None:
    requests = [{"action": "shop.resize", "arguments": {"path": str(number)}} for number in range(7)]
    answer = await client.post(f"{TASKS}/batch", json={"requests": requests})
    ids = {each["id"] for each in answer.json()}

    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = (await client.get(TASKS, params=query)).json()
        seen += [task["id"] for task in page["tasks"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]

    assert len(seen) == 7
    assert set(seen) == ids


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text", ["", "x", "1", ":", f"{'9' * 30}:x", f"{2**63}:x", f"-{2**63 + 1}:x", "1:\x00", "nan:x"]
)
async def test_a_cursor_that_is_none_of_ours_is_never_an_error_of_the_server(
    client: httpx.AsyncClient, text: str
) -> None:
    for path in (TASKS, "/api/v1/dead"):
        assert (await client.get(path, params={"cursor": cursor(text)})).status_code in (200, 422), path


@pytest.mark.parametrize("task_id", ["%00", "%F0%9F%8D%8C", "..%2Ftasks", "x" * 4000, "%0a", "'%20OR%201=1--"])
async def test_an_id_that_cannot_be_one_is_not_found(client: httpx.AsyncClient, task_id: str) -> None:
    for path in (f"{TASKS}/{task_id}", f"{TASKS}/{task_id}/result?wait=30", f"/api/v1/dead/{task_id}"):
        assert (await client.get(path)).status_code == 404, path
    assert (await client.post(f"{TASKS}/{task_id}/cancel")).status_code == 404


async def test_a_dead_letter_is_shown_redriven_once_and_dies_again(client: httpx.AsyncClient) -> None:
    task_id = await submitted(client, "shop.fail", reason="no more ink")
    assert (await result(client, task_id))["error_type"] == "ValueError"

    letter = (await client.get(f"/api/v1/dead/{task_id}")).json()
    assert (letter["reason"], letter["attempts"]) == ("failed", 1)
    assert "no more ink" in letter["traceback"]

    redrive = "/api/v1/dead/redrive"
    assert (await client.post(redrive, json={"ids": [task_id, "unknown"]})).json() == {
        "redriven": [task_id],
        "skipped": ["unknown"],
    }
    assert (await result(client, task_id))["task"]["run"] == 1


async def test_a_task_that_runs_is_cancelled(client: httpx.AsyncClient) -> None:
    task_id = await submitted(client, "shop.wait_for_ever")
    polling = asyncio.create_task(result(client, task_id))

    answer = await client.post(f"{TASKS}/{task_id}/cancel")

    assert answer.json()["outcome"] == "cancelled"
    async with asyncio.timeout(5):
        assert (await polling)["task"]["outcome"] == "cancelled"


async def test_a_task_is_followed_from_acceptance_to_end(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/api/v1/events?action=shop.resize") as response:
        lines = response.aiter_lines()
        assert await anext(lines) == ": listening"
        await submitted(client, "shop.fail", reason="not of interest")
        task_id = await submitted(client, "shop.resize", path="a")

        told: list[dict[str, Any]] = []
        async with asyncio.timeout(10):
            async for line in lines:
                if line.startswith("data: "):
                    told.append(json.loads(line.removeprefix("data: ")))
                if told and told[-1]["kind"] == "ended":
                    break

    assert [(event["kind"], event["task_id"]) for event in told] == [("accepted", task_id), ("ended", task_id)]
    assert told[-1]["outcome"] == "ok"


async def test_what_the_recorder_counts_is_among_the_metrics(client: httpx.AsyncClient) -> None:
    await result(client, await submitted(client, "shop.resize", path="a"))

    metrics = (await client.get("/metrics")).text

    samples = {each.name: each.value for family in parsed(metrics) for each in family.samples}
    assert samples["canoa_tasks_accepted_total"] == samples["canoa_results_recorded_total"] == 1
    assert samples["canoa_build_info"] == 1


async def test_a_listener_that_does_not_read_holds_up_nobody_and_is_told_that_it_missed_some(
    shop: Keeping, client: httpx.AsyncClient
) -> None:
    port = client.base_url.port
    assert port is not None
    reader, writer = await asyncio.open_connection(client.base_url.host, port, limit=4096)
    writer.write(f"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    await reader.readuntil(b": listening\n\n")
    event = Event(kind="progress", task_id="t", action="shop.resize", at=datetime.now(UTC), text="x" * 10_000)

    for _ in range(5000):  # 50 MB: more than all buffers on the way hold
        shop.hosted.recorder.events.tell(event)
        await asyncio.sleep(0)
    task_id = await submitted(client, "shop.resize", path="a")

    assert (await result(client, task_id))["result"] == "a-100"
    async with asyncio.timeout(20):
        said = b""
        while b"event: lagged" not in said:
            said = said[-20:] + await reader.read(65536)
    writer.close()


async def test_an_end_between_the_look_and_the_wait_is_not_missed(
    shop: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says that it runs, and it ends before the waiter is told so."""
    store, ended, tell = shop.hosted.recorder.store, asyncio.Event(), Events.tell
    look = store.task

    async def look_slowly(task_id: TaskId) -> TaskRow | None:
        row = await look(task_id)
        await ended.wait()
        return row

    def tell_and_say_so(events: Events, event: Event) -> None:
        tell(events, event)
        if event.kind == "ended":
            asyncio.get_running_loop().call_soon(ended.set)

    async with listening(shop.app, shop.desk) as client:
        task_id = await submitted(client, "shop.wait_for_ever")
        monkeypatch.setattr(store, "task", look_slowly)
        monkeypatch.setattr(Events, "tell", tell_and_say_so)
        waiting = asyncio.create_task(shop.desk.result(task_id, wait_s=60))
        await asyncio.sleep(0)

        monkeypatch.setattr(store, "task", look)
        await shop.desk.cancel(task_id)

        async with asyncio.timeout(2):
            assert (await waiting).task.outcome == "cancelled"
