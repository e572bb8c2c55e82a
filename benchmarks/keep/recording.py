"""`recorder_…`: how fast a recorder writes down results that wait for it, and how soon each can be seen at a pace.

The tasks are accepted and their results wait in `canoa.results` before the recorder starts. Each result also goes to
the queue of a caller, as it does in life. What the queue holds less, the recorder has written, told and acknowledged,
up to its prefetch, which is constant while it is at work.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from benchmarks import bare, environment, processes
from benchmarks.client import text
from benchmarks.keep.contestants import MODULES
from benchmarks.keep.recorders import fresh_queues, recorder, started_recorder
from benchmarks.polling import polling, wait_for_consumer
from benchmarks.processes import ContestantFailed
from benchmarks.rows import OURS
from canoa import Canoa
from canoa.broker import topology
from canoa.broker.port import Message, Publication, Queue
from canoa.clock import now_ms
from canoa.recorder import reading
from canoa.store.opening import new_store
from canoa.store.port import Accept
from canoa.vocabulary import ActionName
from canoa.wire import result, task
from canoa.wire.codec import ContentType
from canoa.wire.ids import new_task_id

if TYPE_CHECKING:
    from canoa.store.port import NewTask

ACTION = ActionName("bench.noop")
CALLER = "canoa.reply.bench"
BODY = b'{"payload":"%s"}' % text(100).encode()
BATCH = 500

FIRST_LEFT, LAST_LEFT = 0.75, 0.1
"""The clock runs while the queue holds between these shares of all results: all that time prefetch is full."""

RECORDED_WITHIN_S = 120
LOOK_EVERY_S = 0.02


# --- How fast --------------------------------------------------------------------------------------------------


def rate(broker_url: str, store_url: str, count: int) -> float:
    """Results per second."""
    link = bare.Link(broker_url)
    with fresh_queues(link, CALLER):
        asyncio.run(_fill(broker_url, store_url, count))
        with started_recorder(broker_url, store_url) as process:
            seen: list[tuple[float, int]] = []
            for _ in polling(RECORDED_WITHIN_S, "the recorder", every_s=LOOK_EVERY_S):
                process.check()
                seen.append((time.perf_counter(), _left(link)))
                if seen[-1][1] == 0 and _left_in_caller(link) == count:
                    break
        asyncio.run(_check_all_ended(store_url))
    return _steady_rate(seen, count)


def _left(link: bare.Link) -> int:
    found = link.look(topology.RESULTS)
    assert found is not None
    return found.messages


def _left_in_caller(link: bare.Link) -> int:
    found = link.look(CALLER)
    assert found is not None
    return found.messages


def _steady_rate(seen: list[tuple[float, int]], count: int) -> float:
    window = [(at_s, left) for at_s, left in seen if LAST_LEFT * count <= left <= FIRST_LEFT * count]
    if len(window) < 2:
        raise ContestantFailed("the results were gone before they could be counted; let more of them wait")
    (first_s, first_left), (last_s, last_left) = window[0], window[-1]
    return (first_left - last_left) / (last_s - first_s)


async def _fill(broker_url: str, store_url: str, count: int) -> None:
    """Accepted tasks in the store, their results in the queue."""
    tasks = [_task() for _ in range(count)]
    store = new_store(store_url)
    await store.open()
    for begin in range(0, count, BATCH):
        await store.apply([Accept(task=each) for each in tasks[begin : begin + BATCH]])
    await store.aclose()
    broker = Canoa("bench", broker=broker_url).new_broker("bench")
    await broker.open()
    await broker.declare(*topology.shared(), *topology.recorder(), Queue(name=CALLER))
    outcomes = await broker.publish_many([_answer(each) for each in tasks])
    await broker.aclose()
    assert not any(outcomes), outcomes


def _task() -> NewTask:
    message = Message(
        body=BODY, content_type=ContentType.JSON.value, message_id=new_task_id(), type=ACTION, reply_to=CALLER
    )
    return reading.new_task(message, now_ms())


def _answer(kept: NewTask) -> Publication:
    answer = result.success_message(kept.id, b"null", ContentType.JSON.value, None)
    known = task.Task(id=kept.id, action=ACTION, message=kept.message, started_s=time.time())
    return Publication(message=result.for_the_record(answer, known, "bench"), key=topology.RESULTS)


async def _check_all_ended(store_url: str) -> None:
    store = new_store(store_url)
    await store.open()
    unfinished = await store.unfinished(limit=1)
    await store.aclose()
    if unfinished:
        raise ContestantFailed("the queue is empty, but the store has tasks that did not end")


# --- How soon --------------------------------------------------------------------------------------------------


def visible_p99_ms(broker_url: str, store_url: str, *, per_s: int, seconds: int) -> float:
    """From the end of the action to the moment its caller hears, which is after the commit: visible no later."""
    env = {environment.BROKER: broker_url, environment.STORE: store_url}
    queue = topology.action_queue_name("bench.told_at")
    description = processes.ask(MODULES[OURS], "describe", env=env)
    link = bare.Link(broker_url)
    with (
        fresh_queues(link, queue),
        recorder(link, broker_url, store_url),
        processes.workers(description["worker"], 1, env=env) as workers,
    ):
        wait_for_consumer(link, queue, workers)
        took_ms: float = processes.run("benchmarks.keep.pacing", per_s, seconds, env=env)
    return took_ms
