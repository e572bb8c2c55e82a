"""“Did you mean …?” where an action is not known: whoever mistypes a name should not have to look it up."""

from __future__ import annotations

import difflib
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from canoa import errors
from canoa.cli.opening import open_door
from canoa.errors import CanoaError, UnknownAction

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def close_names_told(action: str, broker: str | None) -> Iterator[None]:
    """An `UnknownAction` from the block also names those that look like it."""
    try:
        yield
    except UnknownAction as exc:
        close = difflib.get_close_matches(action, _known(broker), n=3, cutoff=0.6)
        if not close:
            raise
        raise errors.named("UnknownAction", f"{exc}; did you mean {' or '.join(close)}?") or exc from exc


def _known(broker: str | None) -> list[str]:
    """As far as whoever keeps tasks knows. Only a hint: no answer is no error."""
    with suppress(CanoaError), closing(open_door(broker)) as door:
        return [each.action for each in door.actions()]
    return []
