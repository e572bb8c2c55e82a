"""A kept task stays in its trace on its way through the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.traced import Traced, is_child, trace_id

from canoa import Backoff, Context

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
