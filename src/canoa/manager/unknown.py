"""What to say about an action that no node ever offered: the nearest names that some did, and where to look. Pure."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Final

from canoa.errors import UnknownAction

if TYPE_CHECKING:
    from collections.abc import Collection

    from canoa.vocabulary import ActionName

CLOSE: Final = 0.8
SHOWN: Final = 5

COMPARED: Final = 500
"""Names at most: anybody may ask for what is not there, and comparing takes ten microseconds each."""


def unknown_action(action: ActionName, known: Collection[ActionName]) -> UnknownAction:
    """`known`: what nodes offer, or did."""
    close = difflib.get_close_matches(action, list(islice(known, COMPARED)), n=2, cutoff=CLOSE)
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    elif known:
        hint = f"nodes offer {', '.join(sorted(known)[:SHOWN])}{', …' if len(known) > SHOWN else ''}"
    else:
        hint = "no node has registered"
    return UnknownAction(action, nodes_offer=hint)
