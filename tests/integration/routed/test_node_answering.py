"""What a manager sends to a node's own queue runs like any task, and every end of it is an answer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.contract.broker.inbox import until_holding
from tests.integration.pool import cpu_actions as lab
from tests.integration.pool.pool import Gate, sample, taken, until
from tests.integration.routed.bare_manager import NODE, TASK_ID, BareManager, managing
from tests.integration.traced import Traced, trace_id

from canoa import Canoa, Context, DoNotRetry
from canoa.broker import topology
from canoa.clock import now_ms
from canoa.wire import result, sapparchi, task, trace
from canoa.wire.event import Event
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path

    from canoa.broker.port import HeaderValue

NAMED = WorkerSettings(node_id=NODE)
QUEUE = topology.node_queue_name(NODE)
HOUR_MS = 3_600_000


async def test_a_result_is_answered_with_who_ran_it_and_when(app: Canoa, manager: BareManager) -> None:
    @app.action
    async def double(number: int) -> int:
        return 2 * number

    before_ms = int(time.time() * 1000)
    async with app.worker_with(NAMED):
        request_id = await manager.send("shop.double", {"number": 21})
        answered = await manager.answer()

    assert (answered.request_id, answered.action, answered.value) == (
        request_id,
        "urn:sapparchi:Action:shop.double",
        42,
    )
    assert answered.status == "ok"
    assert answered.headers[result.NODE] == NODE
    started, ended = answered.headers[result.STARTED], answered.headers[sapparchi.ENDED]
    assert isinstance(started, int)
    assert isinstance(ended, int)
    assert before_ms <= started <= ended


async def test_a_message_as_published_needs_nothing_of_ours(app: Canoa, manager: BareManager) -> None:
    @app.action
    async def double(number: int) -> int:
        return 2 * number

    async with app.worker_with(NAMED):
        await manager.send_raw(
            b'{"actionTo":"urn:sapparchi:Action:shop.double","requestID":"r-1","messageData":"{\\"number\\": 4}"}'
        )

        assert (await manager.answer()).value == 8


@pytest.mark.parametrize(
    ("data", "got"), [("x", "x"), ({"value": 7}, 7), ([1, 2], [1, 2]), ({"other": 1}, {"other": 1})]
)
async def test_the_only_parameter_takes_whatever_came_out_before(
    memory_app: Canoa, memory_manager: BareManager, data: Any, got: Any
) -> None:
    @memory_app.action
    async def echo(value: Any, loud: bool = False) -> Any:
        return value

    async with memory_app.worker_with(NAMED):
        await memory_manager.send("shop.echo", data)

        assert (await memory_manager.answer()).value == got


async def test_a_failure_is_answered_and_never_retried_here(app: Canoa, manager: BareManager) -> None:
    runs = 0

    @app.action(retry=5)
    async def fails() -> None:
        nonlocal runs
        runs += 1
        raise LookupError("no such thing \ud800")

    async with app.worker_with(NAMED) as worker:
        await manager.send("shop.fails", headers={task.RETRIES: 5})
        answered = await manager.answer()

        assert answered.status == "failed"
        assert answered.value == {"error": "no such thing ?"}
        assert answered.headers[sapparchi.ERROR_TYPE] == "LookupError"
        assert "raise LookupError" in str(answered.headers[result.TRACEBACK])
        assert sapparchi.NO_RETRY not in answered.headers
        assert sample(worker, "canoa_actions_total", action="shop.fails", layer="CLOUD", outcome="failed") == 1
    assert runs == 1


async def test_an_action_can_say_that_another_attempt_is_pointless(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    @memory_app.action
    async def fails() -> None:
        raise DoNotRetry("never")

    async with memory_app.worker_with(NAMED):
        await memory_manager.send("shop.fails")

        assert (await memory_manager.answer()).headers[sapparchi.NO_RETRY] is True


@pytest.mark.parametrize("is_thread", [False, True])
async def test_an_attempt_ends_at_the_limit_that_its_manager_set(
    app: Canoa, manager: BareManager, is_thread: bool
) -> None:
    gate = Gate()
    app.action(name="held")(lambda: gate.hold_thread()) if is_thread else app.action(name="held")(gate.hold)

    async with app.worker_with(NAMED):
        await manager.send("shop.held", headers={task.TIMEOUT: 50})

        assert (await manager.answer()).status == "timed_out"
        gate.open()


async def test_a_notice_interrupts_it_by_its_request_id(app: Canoa, manager: BareManager) -> None:
    gate = Gate()
    app.action(name="held")(gate.hold)

    async with app.worker_with(NAMED):
        request_id = await manager.send("shop.held")
        await gate.has(1)
        await manager.cancel(request_id)

        assert (await manager.answer()).status == "cancelled"


async def test_what_was_cancelled_before_it_started_does_not_start(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    gate = Gate()
    memory_app.action(name="held")(gate.hold)

    async with memory_app.worker_with(WorkerSettings(node_id=NODE, concurrency=1)):
        await memory_manager.send("shop.held")
        await gate.has(1)
        second = await memory_manager.send("shop.held")
        await memory_manager.cancel(second)
        await until_holding(memory_manager.broker, topology.cancel_queue(NODE)[0].name, 0)
        gate.open()
        by_id = {each.request_id: each.status for each in await memory_manager.answers(2)}

    assert by_id[second] == "cancelled"
    assert gate.came == 1


async def test_past_its_deadline_it_does_not_start(memory_app: Canoa, memory_manager: BareManager) -> None:
    gate = Gate()
    memory_app.action(name="held")(gate.hold)

    async with memory_app.worker_with(NAMED):
        await memory_manager.send("shop.held", headers={task.DEADLINE: 1})

        assert (await memory_manager.answer()).status == "expired"
    assert gate.came == 0


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
async def test_deadlines_and_times_are_those_of_managers_whose_clock_differs(
    memory_app: Canoa, memory_manager: BareManager, off_ms: int
) -> None:
    @memory_app.action
    async def double(number: int) -> int:
        return 2 * number

    managers_ms = now_ms() + off_ms

    async with memory_app.worker_with(NAMED) as worker:
        await memory_manager.heartbeat(managers_ms)
        await until(lambda: worker._joined is not None and worker._joined.node.ahead_ms != 0)
        await memory_manager.send("shop.double", 1, headers={task.DEADLINE: managers_ms - 20_000})
        late = await memory_manager.answer()
        await memory_manager.send("shop.double", 2, headers={task.DEADLINE: managers_ms + 20_000})
        in_time = await memory_manager.answer()

    assert (late.status, in_time.status) == ("expired", "ok")
    assert in_time.headers[sapparchi.ENDED] == pytest.approx(managers_ms, abs=20_000)
    assert in_time.headers[result.STARTED] == pytest.approx(managers_ms, abs=20_000)


async def test_cpu_actions_run_in_their_processes(tmp_path: Path) -> None:
    async with lab.app, managing(lab.app) as manager, lab.app.worker_with(NAMED):
        await manager.send("lab.square", 9)  # the whole input is its only parameter
        assert (await manager.answer()).value == 81

        await manager.send("lab.dies", {"note": str(tmp_path / "runs"), "how": "killed"})
        poisoned = await manager.answer()

    assert poisoned.status == "poisoned"
    assert (tmp_path / "runs").read_text() == "xx"


async def test_the_context_knows_task_attempt_and_a_key_that_stays(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    @memory_app.action
    async def tells(ctx: Context) -> list[Any]:
        return [ctx.task_id, ctx.attempt, ctx.idempotency_key, ctx.trace_id, ctx.node_id]

    async with memory_app.worker_with(NAMED):
        await memory_manager.send("shop.tells", headers={task.ATTEMPT: 2})

        assert (await memory_manager.answer()).value == [TASK_ID, 2, f"{TASK_ID}.0", TASK_ID, NODE]


async def test_progress_is_told_of_the_task_and_not_of_the_request(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    @memory_app.action
    async def paints(ctx: Context) -> None:
        ctx.progress(0.5, "first coat")

    async with memory_app.worker_with(NAMED):
        declared = topology.event_queue("test", topology.progress_key(TASK_ID))
        await memory_manager.broker.declare(*declared)
        await memory_manager.send("shop.paints")
        (told,) = await taken(memory_manager.broker, "canoa.events.test", 1)

    (event,) = msgspec.json.decode(told.message.body, type=list[Event])
    assert (event.task_id, event.action, event.text, event.node_id) == (TASK_ID, "shop.paints", "first coat", NODE)


async def test_its_span_joins_the_trace_that_its_manager_sent(
    memory_app: Canoa, memory_manager: BareManager, traced: Traced
) -> None:
    memory_app.action(name="one")(lambda: 1)
    parent = trace.TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", 1, None)

    async with memory_app.worker_with(NAMED):
        await memory_manager.send("shop.one", headers=trace.to_headers(parent))
        await memory_manager.answer()
        span = await traced.one("process shop.one")

    assert trace_id(span) == parent.trace_id
    assert span.attributes is not None
    assert span.attributes["canoa.task_id"] == TASK_ID
    assert span.attributes["messaging.destination.name"] == QUEUE


@pytest.mark.parametrize(
    ("action", "data", "headers", "error"),
    [
        ("shop.double", {"number": "x"}, {}, "Expected `int`"),
        ("shop.double", {"number": 1}, {task.ATTEMPT: "soon"}, "header canoa-attempt is 'soon'"),
        ("no name", {}, {}, "is not an action's name"),
    ],
)
async def test_what_cannot_run_is_answered_as_refused(
    memory_app: Canoa,
    memory_manager: BareManager,
    action: str,
    data: Any,
    headers: dict[str, HeaderValue],
    error: str,
) -> None:
    @memory_app.action
    async def double(number: int) -> int:
        return 2 * number

    async with memory_app.worker_with(NAMED):
        request_id = await memory_manager.send(action, data, headers=headers)
        answered = await memory_manager.answer()

    assert (answered.request_id, answered.status) == (request_id, "refused")
    assert error in answered.value["error"]


async def test_an_action_of_another_node_is_given_back(memory_app: Canoa, memory_manager: BareManager) -> None:
    memory_app.action(name="one")(lambda: 1)

    async with memory_app.worker_with(NAMED):
        request_id = await memory_manager.send("shop.nowhere")
        answered = await memory_manager.answer()

    assert (answered.request_id, answered.status) == (request_id, "returned")
    assert answered.value == {"error": "this node does not offer shop.nowhere; it offers shop.one"}


@pytest.mark.parametrize(
    "body", [b"", b"\xff{", b"[1]", b'{"actionTo":"urn:sapparchi:Action:shop.one"}', b"[" * 50_000]
)
async def test_what_nobody_can_be_told_of_is_counted_and_harms_nobody(
    memory_app: Canoa, memory_manager: BareManager, body: bytes
) -> None:
    @memory_app.action
    async def one() -> int:
        return 1

    async with memory_app.worker_with(NAMED) as worker:
        await memory_manager.send_raw(body)
        await until(lambda: sample(worker, "canoa_node_messages_refused_total") == 1)
        await memory_manager.send("shop.one")

        assert (await memory_manager.answer()).value == 1
    await until_holding(memory_manager.broker, QUEUE, 0)
    assert memory_manager.answer_count == 1


async def test_half_a_message_is_answered_where_it_says_whose_it_is(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    memory_app.action(name="one")(lambda: 1)

    async with memory_app.worker_with(NAMED):
        await memory_manager.send_raw(b'{"requestID":"r-9","actionTo":7}')
        answered = await memory_manager.answer()

    assert (answered.request_id, answered.status) == ("r-9", "refused")


async def test_a_result_that_is_too_large_is_refused(memory_app: Canoa, memory_manager: BareManager) -> None:
    memory_app.action(name="large")(lambda: "x" * 2_000_000)

    async with memory_app.worker_with(NAMED):
        await memory_manager.send("shop.large")

        assert (await memory_manager.answer()).status == "refused"


async def test_pool_and_managers_reach_the_same_action_at_once(app: Canoa, manager: BareManager) -> None:
    gate = Gate()

    @app.action
    async def held() -> str:
        await gate.hold()
        return "done"

    async with app.worker_with(NAMED):
        handle = await held.submit()
        await manager.send("shop.held")
        await gate.has(2)
        gate.open()

        assert await handle.result(10) == "done"
        assert (await manager.answer()).value == "done"


async def test_one_concurrency_key_counts_both_ways(memory_app: Canoa, memory_manager: BareManager) -> None:
    gate = Gate()

    @memory_app.action(concurrency="only")
    async def held() -> str:
        await gate.hold()
        return "done"

    async with memory_app.worker_with(NAMED):
        handle = await held.submit()
        await gate.has(1)
        await memory_manager.send("shop.held")
        await until_holding(memory_manager.broker, QUEUE, 0)
        assert gate.came == 1
        gate.open()

        assert await handle.result(10) == "done"
        assert (await memory_manager.answer()).value == "done"


async def test_on_drain_running_ones_finish_and_all_others_are_returned(app: Canoa, manager: BareManager) -> None:
    gate = Gate()
    app.action(name="held")(gate.hold)

    async with app.worker_with(WorkerSettings(node_id=NODE, concurrency=1)):
        for _ in range(6):
            await manager.send("shop.held")
        await gate.has(1)
        asyncio.get_running_loop().call_later(0.1, gate.open)  # while the worker drains

    statuses = sorted(str(each.status) for each in await manager.answers(6))
    assert statuses == ["ok", *["returned"] * 5]
    assert gate.came == 1


async def test_what_runs_longer_than_the_drain_is_interrupted_and_returned(app: Canoa, manager: BareManager) -> None:
    gate = Gate()
    app.action(name="held")(gate.hold)

    async with app.worker_with(WorkerSettings(node_id=NODE, drain_s=0.05)):
        await manager.send("shop.held")
        await gate.has(1)

    assert (await manager.answer()).status == "returned"
