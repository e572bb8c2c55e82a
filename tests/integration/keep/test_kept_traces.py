"""A kept task stays in its trace on its way through the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from tests.integration.traced import Traced, is_child, trace_id

from canoa import Backoff, Context
from canoa.api.app import Served, new_api
from canoa.api.readiness import Readiness

if TYPE_CHECKING:
    from tests.integration.keep.keeping import Keeping

WITHIN_S = 10.0


async def test_its_attempts_are_children_of_its_send(keeping: Keeping, traced: Traced) -> None:
    @keeping.app.action(retry=1, backoff=Backoff(first_s=0.01, cap_s=0.01))
    async def fails_once(ctx: Context) -> str | None:
        if ctx.attempt == 1:
            raise LookupError
        return ctx.trace_id

    await keeping.start()
    with traced.tracer.start_as_current_span("program"):
        handle = await fails_once.using(result="keep").submit()
    seen = await handle.result(WITHIN_S)

    sent = await traced.one("send shop.fails_once")
    attempts = traced.named("process shop.fails_once")
    assert seen == trace_id(sent) == trace_id(traced.named("program")[0])
    assert [is_child(attempt, sent) for attempt in attempts] == [True, True]


async def test_a_batch_of_kept_tasks_leaves_no_span_open(keeping: Keeping, traced: Traced) -> None:
    @keeping.app.action()
    async def double(number: int) -> int:
        return 2 * number

    await keeping.start()
    handles = await double.using(result="keep").submit_many([1, 2, 3])

    assert [await handle.result(WITHIN_S) for handle in handles] == [2, 4, 6]
    assert len(traced.named("send shop.double")) == 3


TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize("path", ["tasks", "tasks/batch"])
async def test_what_is_submitted_over_http_joins_the_trace_of_its_request(memory_keeping: Keeping, path: str) -> None:
    @memory_keeping.app.action()
    async def tells(ctx: Context) -> str | None:
        return ctx.trace_id

    await memory_keeping.start()
    request = {"action": "shop.tells", "arguments": {}}
    body = {"requests": [request]} if path == "tasks/batch" else request
    async with client_of(memory_keeping) as client:
        traced = await client.post(path, json=body, headers={"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"})
        untraced = await client.post(path, json=body)

    assert await result_of(memory_keeping, traced) == TRACE_ID
    assert await result_of(memory_keeping, untraced) not in (TRACE_ID, None)


def client_of(keeping: Keeping) -> httpx.AsyncClient:
    served = Served(app=keeping.app, readiness=Readiness(lambda: keeping.app.new_broker("test")), desk=keeping.desk)
    api = new_api(served, hosts=["shop"], token=TRACE_ID)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=api),
        base_url="http://shop/api/v1/",
        headers={"Authorization": f"Bearer {TRACE_ID}"},
    )


async def result_of(keeping: Keeping, answer: httpx.Response) -> object:
    assert answer.status_code == 201, answer.text
    submitted = answer.json()
    task_id = (submitted[0] if isinstance(submitted, list) else submitted)["id"]
    return await keeping.app.handle(task_id).result(WITHIN_S)
