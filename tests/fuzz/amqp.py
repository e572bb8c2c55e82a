"""Broken and hostile bytes for the AMQP engine: `python -m tests.fuzz.amqp --seconds 60` (a seed repeats a run).

Whatever a broker sends, the engine goes on or raises `ProtocolError`; it says nothing but whole frames, keeps no more
than one unfinished frame and one announced body per channel, and it does not matter in which pieces the bytes came.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import struct
import sys
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from tests.unit.amqp.client import Answer, Client, ask
from tests.unit.amqp.golden import frames, transcript

from canoa.broker.amqp import methods
from canoa.broker.amqp.errors import ClosedByUs, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOWEST_S: Final = 2.0
GROWTH_BYTES: Final = 64 * 1024 * 1024

_HOSTILE_NUMBERS: Final = [0, 1, 4, 7, 8, 0x7F, 0x80, 0xFF, 0x1000, 0x1FFF8, 0x20000, 2**31 - 1, 2**31, 2**32 - 1]
_RECEIVED: Final = list(frames("received.hex").values())
_TRANSCRIPT: Final = [data for side, data in transcript("rabbitmq-3.10.8.hex") if side == "<"]


# --- What is sent -------------------------------------------------------------------------------


def stream(rng: random.Random) -> bytes:
    """Mostly valid: golden frames or the record of a broker, with some damage."""
    source = rng.choice([_TRANSCRIPT, _RECEIVED, _RECEIVED])
    parts = list(source) if source is _TRANSCRIPT else rng.choices(source, k=rng.randint(1, 6))
    if rng.random() < 0.05:
        return rng.randbytes(rng.randint(0, 200))
    if rng.random() < 0.2:
        rng.shuffle(parts)
    data = b"".join(parts)
    for _ in range(rng.choice([0, 1, 1, 2, 5, 20])):
        data = rng.choice(_DAMAGES)(rng, data)
    return data


def _flip(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) or 1)
    return data[:at] + bytes(byte ^ 1 << rng.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]


def _truncate(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randint(0, len(data))]


def _remove(rng: random.Random, data: bytes) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + data[at + rng.choice([1, 4, 8, 100]) :]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + data[at : at + rng.choice([1, 8, 100])] + data[at:]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at:]


def _overwrite_number(rng: random.Random, data: bytes) -> bytes:
    at = rng.randint(0, len(data))
    number = struct.pack(rng.choice([">I", ">Q"]), rng.choice(_HOSTILE_NUMBERS))
    return data[:at] + number + data[at + len(number) :]


_DAMAGES: Final = [_flip, _flip, _truncate, _remove, _repeat, _insert, _overwrite_number]


# --- Who must bear it -----------------------------------------------------------------------------


def victim(stage: int) -> tuple[Client, list[Answer]]:
    """Before the handshake; or with three channels: one that waits for answers, one that consumes, one that closes."""
    client = Client()
    if stage == 0:
        client.connection.start()
        return client, []
    client.shake_hands(frame_max=4096 if stage == 1 else 131072)
    asking, _, closing = [client.open_channel() for _ in range(3)]
    answers = [
        ask(asking, methods.QUEUE_PURGE_OK, methods.QUEUE_PURGE, 0, "q", False),
        ask(asking, methods.BASIC_CONSUME_OK, methods.BASIC_CONSUME, 0, "q", "t", *(False,) * 4, {}),
        Future(),
    ]
    if stage == 3:
        closing.close(answers[-1])
    else:
        answers.pop()
    return client, answers


def suffer(stage: int, pieces: Sequence[bytes]) -> tuple[list[tuple[Any, ...]], str | None, bytes]:
    """What was heard, what was raised, and what was said."""
    client, answers = victim(stage)
    error = None
    try:
        for piece in pieces:
            client.connection.receive(piece)
            assert len(client.connection._tail) <= client.connection.frame_max
    except ProtocolError as exc:
        error = str(exc)
    said = client.says()
    _check_frames(said)
    client.connection.end(ClosedByUs("over"))
    assert all(answer.done() for answer in answers), "somebody was left waiting"
    return client.events, error, said


def _check_frames(said: bytes) -> None:
    said = said.removeprefix(methods.PROTOCOL_HEADER)
    while said:
        kind, _, size = struct.unpack_from(">BHI", said)
        assert kind == methods.METHOD_FRAME
        assert said[size + 7] == methods.FRAME_END
        methods.decode(said[7 : size + 7])
        said = said[size + 8 :]


def attack(rng: random.Random) -> str | None:
    """One stream, whole and in pieces: both must end alike. Says how it ended."""
    stage, data = rng.randrange(4), stream(rng)
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.choice([1, 3, 30])))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    heard, error, said = suffer(stage, [data])
    heard_in_pieces, error_in_pieces, said_in_pieces = suffer(stage, pieces)
    assert repr(heard) == repr(heard_in_pieces)  # repr, since nan is not nan
    assert (error is None) == (error_in_pieces is None)
    assert said == said_in_pieces
    return error


# --- Long runs ------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="repeat this one attack")
    options = parser.parse_args()
    if options.seed is not None:
        print(attack(random.Random(options.seed)))
        return
    _run(options.seconds)


def _run(seconds: float) -> None:
    first = time.time_ns()
    ends, count, refused = time.monotonic() + seconds, 0, 0
    endings: set[str] = set()
    before = _resident_bytes()
    while time.monotonic() < ends:
        seed = first + count
        started = time.thread_time()
        try:
            error = attack(random.Random(seed))
            assert time.thread_time() - started < SLOWEST_S, "too slow"
            assert _resident_bytes() - before < GROWTH_BYTES, "too much memory"
        except BaseException:
            print(f"repeat with: python -m tests.fuzz.amqp --seed {seed}", file=sys.stderr)
            raise
        count += 1
        refused += error is not None
        endings.add(re.split(r"[^a-z ]", error or "")[0])
    print(f"{count:,} streams, {refused:,} refused in {len(endings)} ways, {_resident_bytes() - before:,} bytes more")


def _resident_bytes() -> int:
    """The most that was ever resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
