"""What one message costs in the AMQP engine, without a broker or a socket: `python -m benchmarks.engine`.

Beside it pika's codec doing the same, when `.venv-bench` is there. Both take turns, in processes of their own; the
figure is each one's best of all rounds, which on a shared machine is the one least disturbed. pika reads message by
message, which is its best case: it copies the rest of its buffer after every frame.
Prints a table and writes `build/bench/engine.json`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
PEER_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
RESULT = ROOT / "build" / "bench" / "engine.json"
TURNS = 5
ROUNDS = 100
BATCH = 200  # messages per round: about what one read from a busy socket brings

QUEUE = "canoa.action.shop.resize"
BODY = b'{"path": "a.png", "width": 80, "note": "%s"}' % (b"x" * 60)
HEADERS: dict[str, Any] = {"canoa-attempt": 1, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
PROPERTIES: dict[str, Any] = {
    "content_type": "application/json",
    "reply_to": "canoa.reply.0192f1f0c0de",
    "message_id": "0192f1f0c0de7000800000000000abcd",
    "type": "shop.resize",
}


def best_us(work: Callable[[], None]) -> float:
    """Microseconds per message in the best round."""
    best_s = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        best_s = min(best_s, time.perf_counter() - start)
    return best_s / BATCH * 1e6


# --- Ours -----------------------------------------------------------------------------------------


def measure_ours() -> dict[str, float]:
    from canoa.broker.amqp import content
    from canoa.broker.port import Message, Publication, Settlement

    message = Message(body=BODY, headers=HEADERS, **PROPERTIES)
    publication = Publication(message=message, key=QUEUE)
    frames = content.publish_frames(1, publication, 131072)
    receive = _opened_connection().receive
    stream = _deliveries(frames)

    def publish() -> None:
        for _ in range(BATCH):
            content.publish_frames(1, publication, 131072)

    def ack() -> None:
        for tag in range(BATCH):
            content.settle_frame(1, tag, Settlement.ACK)

    return {"publish": best_us(publish), "deliver": best_us(lambda: receive(stream)), "ack": best_us(ack)}


def _opened_connection() -> Any:
    from concurrent.futures import Future

    from canoa.broker.amqp import methods
    from canoa.broker.amqp.engine import Connection, Login

    connection = Connection(Login("guest", "guest", "/"), heartbeat_s=10, properties={}, wake=lambda _: None)
    connection.receive(methods.encode(0, methods.CONNECTION_START, 0, 9, {}, b"PLAIN", b"en_US"))
    connection.receive(methods.encode(0, methods.CONNECTION_TUNE, 2047, 131072, 60))
    connection.receive(methods.encode(0, methods.CONNECTION_OPEN_OK, ""))
    channel = connection.open_channel(Future())
    channel.on_deliver = lambda tag, redelivered, exchange, key, message: None
    return connection


def _deliveries(frames: bytes) -> bytes:
    """A batch of deliveries: the header and body of a publication, each after a method of its own."""
    from canoa.broker.amqp import methods

    content = _content_of(frames)
    return b"".join(
        methods.encode(1, methods.BASIC_DELIVER, f"{QUEUE}#1", tag, False, "", QUEUE) + content for tag in range(BATCH)
    )


def _content_of(frames: bytes) -> bytes:
    """All but the first frame, the method."""
    return frames[8 + int.from_bytes(frames[3:7], "big") :]


# --- pika -----------------------------------------------------------------------------------------


def measure_pika() -> dict[str, float]:
    from pika import channel, frame, spec

    def published() -> bytes:
        properties = spec.BasicProperties(headers=HEADERS, delivery_mode=2, **PROPERTIES)
        frames = [
            frame.Method(1, spec.Basic.Publish(exchange="", routing_key=QUEUE, mandatory=True)),
            frame.Header(1, len(BODY), properties),
            frame.Body(1, BODY),
        ]
        return b"".join([each.marshal() for each in frames])

    def delivered(tag: int) -> bytes:
        method: bytes = frame.Method(1, spec.Basic.Deliver(f"{QUEUE}#1", tag, False, "", QUEUE)).marshal()
        return method + _content_of(published())

    deliveries = [delivered(tag) for tag in range(BATCH)]
    assembler = channel.ContentFrameAssembler()

    def publish() -> None:
        for _ in range(BATCH):
            published()

    def deliver() -> None:
        for data in deliveries:
            while data:
                size, value = frame.decode_frame(data)
                data = data[size:]
                assembler.process(value)

    def ack() -> None:
        for tag in range(BATCH):
            frame.Method(1, spec.Basic.Ack(tag)).marshal()

    return {"publish": best_us(publish), "deliver": best_us(deliver), "ack": best_us(ack)}


# --- Side by side ---------------------------------------------------------------------------------


def turn(python: Path | str, who: str) -> dict[str, float]:
    command = [str(python), "-m", "benchmarks.engine", who]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    turns: dict[str, list[dict[str, float]]] = {"ours": [], "pika": []}
    for _ in range(TURNS):
        turns["ours"].append(turn(sys.executable, "ours"))
        if PEER_PYTHON.exists():
            turns["pika"].append(turn(PEER_PYTHON, "pika"))
    rows = [row(metric, turns) for metric in ("deliver", "publish", "ack")]
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    show(rows)


def row(metric: str, turns: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    ours = min(figures[metric] for figures in turns["ours"])
    theirs = min((figures[metric] for figures in turns["pika"]), default=None)
    return {
        "metric": f"engine_{metric}",
        "ours": round(ours, 3),
        "peer": None if theirs is None else "pika",
        "peer_value": None if theirs is None else round(theirs, 3),
        "ratio": None if theirs is None else round(theirs / ours, 2),
        "unit": "µs/message",
    }


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'metric':<16}{'ours':>8}{'pika':>8}{'ratio':>8}  unit")
    for each in rows:
        print(f"{each['metric']:<16}{each['ours']:>8}{each['peer_value']!s:>8}{each['ratio']!s:>8}  {each['unit']}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ours"]:
            print(json.dumps(measure_ours()))
        case ["pika"]:
            print(json.dumps(measure_pika()))
        case _:
            main()
