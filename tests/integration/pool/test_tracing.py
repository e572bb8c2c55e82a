"""With OpenTelemetry in use, a task is one trace: from its caller over every attempt to the answer."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id, get_current_span
from tests.integration.pool import cpu_actions as lab
from tests.integration.pool.pool import Gate, opened, send, taken, until
from tests.integration.traced import Traced, is_child, trace_id, used

from canoa import ActionFailed, ActionTimedOut, Backoff, Canoa, Context, UnknownAction
from canoa.broker import topology
from canoa.execution.outcome import Outcome
from canoa.wire import trace

QUICKLY = Backoff(first_s=0.01, cap_s=0.01)


async def test_one_trace_leads_from_the_caller_through_a_retry_to_the_answer(app: Canoa, traced: Traced) -> None:
    @app.action(retry=1, backoff=QUICKLY)
    async def fails_once(ctx: Context) -> int:
        with traced.tracer.start_as_current_span("inside"):
            if ctx.attempt == 1:
                raise LookupError("not yet")
        return ctx.attempt

    async with app.worker():
        with traced.tracer.start_as_current_span("program"):
            assert await fails_once.call() == 2
        call, sent = await traced.one("call shop.fails_once"), await traced.one("send shop.fails_once")

    (program,) = traced.named("program")
    first, second = traced.named("process shop.fails_once")
    assert {trace_id(span) for span in traced.all()} == {trace_id(program)}
    assert is_child(call, program)
    assert is_child(sent, call)
    assert is_child(first, sent)
    assert is_child(second, sent)
    assert all(is_child(span, of) for span, of in zip(traced.named("inside"), [first, second], strict=True))
    assert [(span.attributes or {})["canoa.attempt"] for span in (first, second)] == [1, 2]
    assert [span.status.status_code for span in (first, second)] == [StatusCode.ERROR, StatusCode.UNSET]


async def test_spans_say_what_the_conventions_ask_for(app: Canoa, app_broker: str, traced: Traced) -> None:
    @app.action
    async def quick(text: str) -> None: ...

    async with app.worker() as worker:
        handle = await quick.submit("a")
        await handle.result(10)
        process = await traced.one("process shop.quick")
    (sent,) = traced.named("send shop.quick")

    shared = {
        "messaging.system": "canoa.memory" if app_broker == "memory://" else "rabbitmq",
        "messaging.destination.name": topology.action_queue_name(quick.name),
        "messaging.message.id": handle.id,
        "messaging.message.body.size": len(b'{"text":"a"}'),
        "canoa.task_id": handle.id,
    }
    as_send = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
    as_process = {"messaging.operation.name": "process", "messaging.operation.type": "process"}
    assert (sent.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(sent.attributes or {}) == {**shared, **as_send}
    own = {"canoa.attempt": 1, "messaging.client.id": worker.node_id}
    assert dict(process.attributes or {}) == {**shared, **as_process, **own}
    assert traced.named("call shop.quick") == []  # nobody said how long he waits


async def test_a_failure_is_told_on_the_attempt_and_on_the_call(memory_app: Canoa, traced: Traced) -> None:
    @memory_app.action
    async def fails() -> None:
        raise LookupError("no such valve")

    async with memory_app.worker():
        with pytest.raises(ActionFailed):
            await fails.call()
        process, call = await traced.one("process shop.fails"), await traced.one("call shop.fails")

    assert process.status.description == "no such valve"
    assert (process.attributes or {})["error.type"] == "LookupError"
    assert (process.attributes or {})["canoa.outcome"] == "failed"
    (event,) = process.events
    assert (event.attributes or {})["exception.type"] == "LookupError"
    assert "in fails" in str((event.attributes or {})["exception.stacktrace"])
    assert (call.status.status_code, (call.attributes or {})["error.type"]) == (StatusCode.ERROR, "ActionFailed")


async def test_arguments_and_results_that_cannot_be_used_are_failures_too(memory_app: Canoa, traced: Traced) -> None:
    @memory_app.action
    async def unsendable(number: int) -> Any:
        return object()

    async with memory_app.worker(), opened(memory_app) as raw:
        await send(raw, "shop.unsendable", b'{"number":"x"}', message_id="0" * 31 + "1")
        await send(raw, "shop.unsendable", b'{"number":1}', message_id="0" * 31 + "2")
        await until(lambda: len(traced.named("process shop.unsendable")) == 2)

    told = [(span.attributes or {})["error.type"] for span in traced.named("process shop.unsendable")]
    assert told == ["ArgumentsRefused", "Unencodable"]


async def test_a_task_that_nobody_takes_is_told_on_its_send(memory_app: Canoa, traced: Traced) -> None:
    @memory_app.action
    async def unknown() -> None: ...

    async with memory_app:
        with pytest.raises(UnknownAction):
            await unknown.submit()
        with pytest.raises(UnknownAction):
            await unknown.submit_many([unknown.args()])

    assert [span.status.status_code for span in traced.named("send shop.unknown")] == [StatusCode.ERROR] * 2


@pytest.mark.parametrize("kind", ["loop", "thread"])
async def test_what_an_action_submits_is_a_child_of_its_attempt(memory_app: Canoa, traced: Traced, kind: str) -> None:
    @memory_app.action
    async def inner() -> str:
        return format_span_id(get_current_span().get_span_context().span_id)

    @memory_app.action
    async def on_loop() -> str:
        await asyncio.sleep(0)
        return await inner.call()

    @memory_app.action
    def in_thread() -> str:
        return memory_app.sync.call(inner)

    outer = on_loop if kind == "loop" else in_thread
    async with memory_app.worker():
        seen = await outer.call()
        outermost = await traced.one(f"call {outer.name}")

    (attempt,), (nested,) = traced.named(f"process {outer.name}"), traced.named("process shop.inner")
    (call,) = traced.named("call shop.inner")
    assert is_child(call, attempt)
    assert seen == format_span_id(nested.context.span_id)
    assert {trace_id(span) for span in traced.all()} == {trace_id(outermost)}


async def test_what_runs_in_a_process_joins_the_trace(traced: Traced) -> None:
    async with lab.app, lab.app.worker():
        told = await lab.tells.call()
        seen = await lab.trace_id.call()
        attempt = await traced.one("process lab.tells")

    assert (told["trace_id"], told["span_id"]) == (trace_id(attempt), format_span_id(attempt.context.span_id))
    assert seen == trace_id(await traced.one("process lab.trace_id"))


async def test_a_killed_process_is_told_on_its_attempt(traced: Traced, tmp_path: Any) -> None:
    async with lab.app, lab.app.worker():
        assert await lab.dies_once.call(str(tmp_path / "note")) == "recovered"
        await until(lambda: len(traced.named("process lab.dies_once")) == 2)

    first, second = traced.named("process lab.dies_once")
    assert (first.status.status_code, (first.attributes or {})["canoa.outcome"]) == (StatusCode.ERROR, "crashed")
    assert second.status.status_code is StatusCode.UNSET
    assert trace_id(first) == trace_id(second)


async def test_results_of_a_map_each_have_their_spans(app: Canoa, traced: Traced) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    async with app.worker():
        with traced.tracer.start_as_current_span("program"):
            assert sorted([each async for each in double.map(range(20))]) == list(range(0, 40, 2))
        await until(lambda: len(traced.all()) == 1 + 3 * 20)

    sent = {span.context.span_id for span in traced.named("send shop.double")}
    assert {span.parent.span_id for span in traced.named("process shop.double") if span.parent} == sent
    assert len({trace_id(span) for span in traced.all()}) == 1


async def test_a_worker_started_inside_a_span_does_not_drag_it_along(memory_app: Canoa, traced: Traced) -> None:
    @memory_app.action
    async def quick() -> None: ...

    with traced.tracer.start_as_current_span("starting"):
        async with memory_app.worker(), opened(memory_app) as raw:
            await send(raw, "shop.quick", message_id="not a trace id")
            process = await traced.one("process shop.quick")

    (starting,) = traced.named("starting")
    assert process.parent is None
    assert trace_id(process) != trace_id(starting)


async def test_a_task_from_a_program_without_it_is_traced_under_its_own_id(memory_app: Canoa, traced: Traced) -> None:
    @memory_app.action(retry=1, backoff=QUICKLY)
    async def fails() -> None:
        raise LookupError

    task_id = "0af7651916cd43dd8448eb211c80319c"
    async with memory_app.worker(), opened(memory_app) as raw:
        await send(raw, "shop.fails", message_id=task_id)
        await until(lambda: len(traced.named("process shop.fails")) == 2)

    assert {trace_id(span) for span in traced.all()} == {task_id}


@pytest.mark.parametrize(("digits", "is_sampled"), [("0", True), ("f", False)])
async def test_which_of_those_are_sampled_is_for_the_workers_sampler_to_say(
    memory_app: Canoa, monkeypatch: pytest.MonkeyPatch, digits: str, is_sampled: bool
) -> None:
    traced = used(monkeypatch, TracerProvider(ParentBased(TraceIdRatioBased(0.5)), shutdown_on_exit=False))

    @memory_app.action
    async def quick() -> None: ...

    async with memory_app.worker() as worker, opened(memory_app) as raw:
        await send(raw, "shop.quick", message_id="1" * 16 + digits * 15 + "1")
        await until(lambda: worker.stats[quick.name].outcomes[Outcome.OK] == 1)

    assert len(traced.all()) == is_sampled


async def test_what_is_not_sampled_still_leads_on(memory_app: Canoa, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = used(monkeypatch, TracerProvider(ALWAYS_OFF, shutdown_on_exit=False))

    @memory_app.action
    async def tells(ctx: Context) -> str | None:
        return ctx.trace_id

    async with memory_app.worker():
        pass
    async with memory_app, opened(memory_app) as raw:
        handle = await tells.submit()
        (sent,) = await taken(raw, topology.action_queue_name(tells.name), 1)

    carried = trace.from_headers(sent.message.headers)
    assert carried is not None
    assert (carried.flags & 1, carried.trace_id != handle.id) == (0, True)
    assert traced.all() == []


async def test_log_lines_about_a_task_carry_its_ids(
    memory_app: Canoa, traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    @memory_app.action
    async def fails(ctx: Context) -> None:
        ctx.logger.info("trying")
        raise LookupError

    async with memory_app.worker():
        with caplog.at_level(logging.INFO, "canoa"), pytest.raises(ActionFailed):
            await fails.call()
        process = await traced.one("process shop.fails")

    ids = {"trace_id": trace_id(process), "span_id": format_span_id(process.context.span_id)}
    told: dict[str, dict[str, Any]] = {
        record.canoa_event: record.canoa_facts  # type: ignore[attr-defined]
        for record in caplog.records
        if hasattr(record, "canoa_event")
    }
    assert ids.items() <= told["trying"].items()
    assert ids.items() <= told["task_failed"].items()


async def test_without_it_log_lines_carry_the_trace_alone(app: Canoa, caplog: pytest.LogCaptureFixture) -> None:
    @app.action(retry=1, backoff=QUICKLY)
    async def fails() -> None:
        raise LookupError

    async with app.worker():
        with caplog.at_level(logging.INFO, "canoa.worker"):
            handle = await fails.submit()
            with pytest.raises(ActionFailed):
                await handle.result(20)

    told = [record.canoa_facts for record in caplog.records if hasattr(record, "canoa_facts")]
    about = [facts for facts in told if facts.get("task_id") == handle.id]
    assert len(about) == 2
    assert all(facts["trace_id"] == handle.id and "span_id" not in facts for facts in about)


async def test_a_batch_that_is_given_up_leaves_no_span_open(memory_app: Canoa, traced: Traced) -> None:
    @memory_app.action
    async def unknown(number: int) -> None: ...

    async with memory_app:
        with pytest.raises(UnknownAction):
            await unknown.submit_many([1, 2, 3])

    assert len(traced.named("send shop.unknown")) == 3


async def test_an_attempt_that_was_interrupted_says_by_what(memory_app: Canoa, traced: Traced) -> None:
    gate = Gate()

    @memory_app.action(timeout=0.05)
    async def endless() -> None:
        await gate.hold()

    async with memory_app.worker():
        with pytest.raises(ActionTimedOut):
            await endless.call()
        cancelled = await endless.using(timeout=60).submit()
        await gate.has(2)
        await cancelled.cancel()
        await until(lambda: len(traced.named("process shop.endless")) == 2)

    told = [(span.attributes or {})["canoa.outcome"] for span in traced.named("process shop.endless")]
    assert told == ["timed_out", "cancelled"]


async def test_the_programs_own_span_comes_before_the_trace_of_a_message(memory_app: Canoa, traced: Traced) -> None:
    @memory_app.action
    async def tells() -> list[str | None]:
        here = trace.current()
        return [] if here is None else [here.trace_id, here.state]

    async with memory_app.worker():
        other = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1"}
        token = trace.received.set(other)
        with traced.tracer.start_as_current_span("program") as program:
            inside = await tells.call()
        outside = await tells.call()
        trace.received.reset(token)

    assert inside == [format_trace_id(program.get_span_context().trace_id), None]
    assert outside == ["0af7651916cd43dd8448eb211c80319c", "vendor=1"]
