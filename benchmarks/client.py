"""One contestant in one role, in a process of its own; prints its figures as JSON.

`python -m benchmarks.client <module> <role> <count> <payload bytes>`, or `… <module> describe`. With `-` for the count
it plays the role once for each count that it reads, a line each, until there are no more.
"""

from __future__ import annotations

import importlib
import json
import random
import string
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from benchmarks.contestant import Contestant, Planner


def load(module: str) -> Contestant:
    return cast("Contestant", importlib.import_module(module))


def text(size: int) -> str:
    """Random letters and digits, the same every time: who compresses shall not profit from a payload of nothing."""
    return "".join(random.Random(size).choices(string.ascii_letters + string.digits, k=size))


def describe(contestant: Contestant) -> dict[str, Any]:
    return {
        "queue": contestant.QUEUE,
        "settings": contestant.SETTINGS,
        "leaves_out": dict(contestant.LEAVES_OUT),
        "worker": list(contestant.WORKER),
        "versions": {package: version(package) for package in contestant.PACKAGES},
    }


def play(contestant: Contestant, role: str, *, count: int, payload: str) -> float | list[float] | None:
    match role:
        case "submit":
            return contestant.submit(count, payload)
        case "fill":
            contestant.fill(count, payload)
            return None
        case "gather":
            return contestant.gather(count, payload)
        case "call":
            return contestant.call(count, payload)
        case "chain":
            return cast("Planner", contestant).chain(count, payload)
        case "fanout":
            return cast("Planner", contestant).fanout(count, payload)
        case _:
            raise SystemExit(f"unknown role {role!r}; use submit, fill, gather, call, chain, fanout or describe")


def main() -> None:
    match sys.argv[1:]:
        case [name, "describe"]:
            answer: Any = describe(load(name))
        case [name, role, "-", size]:
            contestant, payload = load(name), text(int(size))
            for line in sys.stdin:
                print(json.dumps(play(contestant, role, count=int(line), payload=payload)), flush=True)
            return
        case [name, role, count, size]:
            answer = play(load(name), role, count=int(count), payload=text(int(size)))
        case _:
            raise SystemExit(__doc__)
    # The last line is the answer: a library may have printed something before.
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
