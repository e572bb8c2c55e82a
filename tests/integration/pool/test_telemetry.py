"""Traces go through actions; every figure that operators are promised is there, with the right labels and values."""

import asyncio
import platform
from importlib.metadata import version

import pytest
from tests.integration.pool.pool import Gate, sample, until

from canoa import ActionFailed, Backoff, Canoa, Context
from canoa.client.metrics import METRICS
from canoa.vocabulary import Layer
from canoa.wire import trace
from canoa.worker.settings import WorkerSettings

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("is_thread", [False, True])
async def test_what_an_action_submits_stays_in_its_trace(app: Canoa, is_thread: bool) -> None:
    @app.action
    async def inner(ctx: Context) -> str | None:
        return ctx.trace_id

    @app.action
    async def outer() -> str | None:
        return await inner.call()

    @app.action
    def outer_thread() -> str | None:
        return app.sync.call(inner)

    async with app.worker():
        handle = await (outer_thread if is_thread else outer).submit()

        assert await handle.result(10) == handle.id
        assert trace.current() is None


async def test_a_submit_joins_the_trace_it_is_made_in(memory_app: Canoa) -> None:
    @memory_app.action
    async def tells(ctx: Context) -> list[str | None]:
        traced = trace.current()
        return [ctx.trace_id, traced.state if traced else None]

    async with memory_app.worker():
        token = trace.received.set({"traceparent": PARENT, "tracestate": "vendor=1"})
        handle = await tells.submit()
        trace.received.reset(token)

        assert await handle.result(10) == ["0af7651916cd43dd8448eb211c80319c", "vendor=1"]


async def test_tasks_of_different_traces_do_not_mix(memory_app: Canoa) -> None:
    @memory_app.action
    async def inner(ctx: Context) -> str | None:
        await asyncio.sleep(0.001)
        return ctx.trace_id

    @memory_app.action
    async def outer() -> str | None:
        await asyncio.sleep(0.001)
        return await inner.call()

    async with memory_app.worker():
        handles = await outer.submit_many([outer.args()] * 20)

        assert [await handle.result(10) for handle in handles] == [handle.id for handle in handles]


async def test_every_promised_figure_is_there_with_its_labels(memory_app: Canoa) -> None:
    gate = Gate()

    @memory_app.action(retry=1, backoff=Backoff(first_s=0.01, cap_s=0.01))
    async def fails() -> None:
        raise ValueError

    @memory_app.action
    async def held() -> None:
        await gate.hold()

    async with memory_app.worker_with(WorkerSettings(layer=Layer.EDGE)) as worker:
        with pytest.raises(ActionFailed):
            await fails.call()
        handle = await held.submit()
        await gate.has(1)
        await asyncio.sleep(0.02)

        of_fails = {"action": "shop.fails", "layer": "EDGE"}
        assert sample(worker, "canoa_actions_total", outcome="failed", **of_fails) == 1
        assert sample(worker, "canoa_actions_total", outcome="retried", **of_fails) == 1
        assert sample(worker, "canoa_actions_total", outcome="ok", **of_fails) == 0
        assert sample(worker, "canoa_retries_total", action="shop.fails") == 1
        assert sample(worker, "canoa_actions_in_progress", action="shop.held") == 1
        assert sample(worker, "canoa_actions_in_progress", action="shop.fails") == 0
        assert sample(worker, "canoa_duplicates_total") == METRICS.duplicates
        info = {"version": version("canoa"), "python": platform.python_version()}
        assert sample(worker, "canoa_build_info", **info) == 1
        gate.open()
        await handle.result(10)

        await until(lambda: sample(worker, "canoa_action_duration_seconds_count", action="shop.held") == 1)
        assert sample(worker, "canoa_action_duration_seconds_sum", action="shop.held") >= 0.02
        assert sample(worker, "canoa_action_duration_seconds_bucket", action="shop.held", le="0.01") == 0
        assert sample(worker, "canoa_action_duration_seconds_bucket", action="shop.held", le="+Inf") == 1
        assert sample(worker, "canoa_action_queue_seconds_count", action="shop.fails") == 2
        assert sample(worker, "canoa_action_queue_seconds_bucket", action="shop.held", le="1.0") == 1


async def test_time_in_the_queue_is_measured(memory_app: Canoa) -> None:
    memory_app.action(name="quick")(lambda: None)
    async with memory_app.worker():
        pass
    handle = await memory_app.find("quick").submit()
    await asyncio.sleep(0.05)

    async with memory_app.worker() as worker:
        await handle.result(10)

        assert 0.05 <= sample(worker, "canoa_action_queue_seconds_sum", action="shop.quick") < 5
