"""Where the golden bytes are, and how they are read."""

from __future__ import annotations

from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden" / "amqp"


def frames(name: str) -> dict[str, bytes]:
    """Frames by name, from a file of `name hex` lines."""
    lines = (GOLDEN / name).read_text().splitlines()
    return {name: bytes.fromhex(data) for name, data in map(str.split, lines)}


def transcript(name: str) -> list[tuple[str, bytes]]:
    """Who spoke (`>` the client, `<` the broker), and the bytes."""
    lines = (GOLDEN / name).read_text().splitlines()
    return [(line[0], bytes.fromhex(line[2:])) for line in lines]
