"""`canoa` that proves its nodes ten times as often: what takes a minute elsewhere takes seconds here.

python -m tests.acceptance.hurried <arguments of `canoa`>
"""

from __future__ import annotations

from canoa.cli import main
from canoa.execution import proof

TIMES = 10


def hurry() -> None:
    for name in ("EVERY_S", "AGAIN_S", "ANSWER_WITHIN_S"):
        setattr(proof, name, getattr(proof, name) / TIMES)


if __name__ == "__main__":
    hurry()
    main()
