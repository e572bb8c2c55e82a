"""What to say about an action that no node ever offered, or a plan that nobody registered: the nearest names that there
are, and where to look. Pure.
"""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Final

from canoa.errors import UnknownAction, UnknownPlan

if TYPE_CHECKING:
    from collections.abc import Collection

    from canoa.vocabulary import ActionName

CLOSE: Final = 0.8
SHOWN: Final = 5

COMPARED: Final = 500
"""Names at most: anybody may ask for what is not there, and comparing takes ten microseconds each."""


def unknown_action(action: ActionName, known: Collection[ActionName]) -> UnknownAction:
    """`known`: what nodes offer, or did."""
    return UnknownAction(action, nodes_offer=_hint(action, known, "nodes offer") or "no node has registered")


def unknown_plan(name: str, known: Collection[str]) -> UnknownPlan:
    """`known`: the names of those that are registered."""
    return UnknownPlan(name, registered=_hint(name, known, "there are"))


def _hint(name: str, known: Collection[str], some: str) -> str:
    """The nearest, or some of them; empty: there are none."""
    close = difflib.get_close_matches(name, list(islice(known, COMPARED)), n=2, cutoff=CLOSE)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"{some} {', '.join(sorted(known)[:SHOWN])}{', …' if len(known) > SHOWN else ''}" if known else ""
