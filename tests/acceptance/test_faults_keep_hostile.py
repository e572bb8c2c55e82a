"""Garbage in every queue that a recorder reads: nothing falls over, each is refused once, and good messages pass."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from tests.acceptance.kept_depot import KeptDepot, asked

from canoa.api.documents import PREFIX
from canoa.broker import topology
from canoa.broker.amqp import values
from canoa.broker.port import Message, Publication
from canoa.wire import result, task

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

TIMES: Final = 25
HUGE: Final = "".join(map(chr, range(0x4E00, 0x4E00 + 5000)))  # compresses badly: no index takes it
BEYOND: Final = "a time of 64 bits"
DEEP: Final = b"[" * 100_000
DOUBLE: Final[dict[str, Any]] = {"type": "depot.double", "message_id": "a"}
NO_NUMBERS: Final[list[Any]] = ["soon", -1, 2**62, None, [1], {"a": 1}, 1.5, b"\xff"]

BACK_TO_DOUBLE: Final[dict[str, Any]] = {result.ORIGIN: topology.action_queue_name("depot.double")}

NO_TASKS: Final = [
    Message(body=b""),
    Message(body=DEEP, message_id="a"),
    Message(body=b"{}", message_id="a", type="nonsense"),
    Message(body=b"{}", message_id="a", type="\0.\0"),
    Message(body=b"{}", type="depot.double"),
    Message(body=b"{}", type="depot.double", message_id="a\0b\n"),
    *(
        Message(body=b"{}", headers={name: value}, **DOUBLE)
        for name, value in itertools.product((task.DUE, task.DEADLINE, task.ATTEMPT, task.RETRIES), NO_NUMBERS)
    ),
]
STAMPED: Final = Message(  # sound, but for a time beyond what we can send ourselves
    body=b'{"number": 1}', type="depot.double", message_id="stamped", headers={"when": BEYOND}
)
NO_RESULTS: Final = [
    Message(body=b""),
    Message(body=DEEP, type="ok"),
    Message(body=b"1", type="great", correlation_id="a"),
    Message(body=b"1", type="\0", correlation_id="a"),
    Message(body=b"1", type="ok", correlation_id="a\0b"),
    Message(body=b"1", type="ok", correlation_id="x" * 255),
]
STRANGE_RESULTS: Final = [
    Message(body=DEEP, type="failed", correlation_id="strange-1", content_type="application/json"),
    Message(body=b"\xff" * 50, type="ok", correlation_id="strange-2", content_encoding="zstd", content_type="x"),
    Message(body=b"1", type="ok", correlation_id="strange-3", headers={result.ACTION: HUGE, result.NODE: HUGE}),
    Message(body=b"1", type="ok", correlation_id="f" * 12 + "7" + "f" * 19, headers={result.STARTED: 2**53}),
    Message(body=b"1", type="refused", correlation_id="x" * 128, headers={task.RUN: 2**62, task.ATTEMPT: "many"}),
]
LETTERS: Final = [
    msgspec.structs.replace(STAMPED, message_id="letter-0", headers={**STAMPED.headers, **BACK_TO_DOUBLE}),
    Message(body=b"no id"),
    Message(body=DEEP),
    Message(body=b"", message_id="letter\0-1", headers={result.ORIGIN: HUGE, result.ERROR: HUGE}),
    Message(body=b"", message_id="letter-2", headers={result.DEAD_SINCE: 2**53, result.REASON: "gone"}),
    Message(body=b"", message_id="letter-3", headers={result.DEAD_SINCE: -1, result.REASON: [1], result.ORIGIN: 7}),
]
NO_EVENTS: Final = [
    Message(body=b""),
    Message(body=b"\xff\xfe"),
    Message(body=DEEP),
    Message(body=b'{"kind": "ended"}'),
    Message(body=b'[{"kind": 1, "task_id": 2, "action": 3, "at": "now"}]'),
]
STRANGE_EVENTS: Final = [
    Message(body=json.dumps([{"kind": kind, "task_id": task_id, "action": "\0", "at": "0001-01-01T00:00:00"}]).encode())
    for kind, task_id in itertools.product(("progress", "ended", ""), ("", "a\0b", HUGE))
]


_plain_field: Final = values._field


@pytest.mark.rabbitmq
@pytest.mark.postgres
async def test_garbage_in_its_queues_stops_no_recorder_and_no_task(
    tmp_path: Path, rabbit: Rabbit, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "_field", _field_with_a_time)
    async with KeptDepot(tmp_path, rabbit, postgres_url) as depot:
        recorder = await depot.recorder("--port", "0")

        async with depot.load():
            await _flood(depot)

        await depot.every_handle_has_its_result()
        await rabbit.wait_empty()
        assert recorder.is_alive
        for event, garbage in (("submit", NO_TASKS), ("result", NO_RESULTS), ("event", NO_EVENTS)):
            assert recorder.said.count(f'"{event}_refused"') == TIMES * len(garbage), event
        for trouble in ("Traceback", "store_does_not_write", "not_taken", "callback_failed"):
            assert trouble not in recorder.said
        assert await _ids(recorder, "tasks", "task_id") >= {"stamped", "strange-1", "strange-3", "x" * 128}
        assert len(await _ids(recorder, "dead", "task_id")) >= len(LETTERS)

        status, said = await asked(recorder, f"{PREFIX}/dead/redrive", {})
        await depot.submit(20)

        assert (status, "letter-0" in said) == (200, True)
        await asyncio.to_thread(recorder.wait_logged, "it cannot be sent")
        await depot.every_handle_has_its_result()
        assert recorder.is_alive


def _field_with_a_time(value: Any, depth: int) -> bytes:
    return b"T" + b"\xff" * 8 if value == BEYOND else _plain_field(value, depth)


async def _flood(depot: KeptDepot) -> None:
    queues = {
        topology.SUBMIT: [*NO_TASKS, STAMPED],
        topology.RESULTS: NO_RESULTS + STRANGE_RESULTS,
        topology.DEAD: LETTERS,
    }
    publications = [_to("", queue, message) for queue, messages in queues.items() for message in messages]
    publications += [_to(topology.EVENTS, topology.progress_key("a"), each) for each in NO_EVENTS + STRANGE_EVENTS]
    broker = depot.app.new_broker("vandal")
    await broker.open()
    try:
        outcomes = await broker.publish_many(publications * TIMES)
    finally:
        await broker.aclose()
    assert set(outcomes) == {None}


def _to(exchange: str, key: str, message: Message) -> Publication:
    return Publication(message=message, exchange=exchange, key=key, mandatory=False)


async def _ids(recorder: Process, what: str, name: str) -> set[str]:
    status, body = await asked(recorder, f"{PREFIX}/{what}?limit=500")
    assert status == 200, body
    [rows] = [value for value in json.loads(body).values() if isinstance(value, list)]
    return {row.get(name) or row.get("id") for row in rows}
