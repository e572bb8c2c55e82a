"""“Did you mean …?” where an action is not known: whoever mistypes a name should not have to look it up."""

from __future__ import annotations

import difflib
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from canoa import errors
from canoa.cli.opening import open_door
from canoa.errors import CanoaError, UnknownAction

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_AT_TASKS: Final = 500
CLOSE: Final = 0.8
SHOWN: Final = 8


@contextmanager
def close_names_told(action: str, broker: str | None) -> Iterator[None]:
    """An `UnknownAction` of the pool from the block names those that look like it, or those that there are. What
    managers say of a routed task's names such already."""
    try:
        yield
    except UnknownAction as exc:
        known = _known(broker)
        if not known:
            raise
        if action in known:
            text = f"no worker offers {action} to the pool; nodes may: canoa submit {action} '{{…}}' --routed"
            raise errors.named("UnknownAction", text) or exc from exc
        close = difflib.get_close_matches(action, known, n=2, cutoff=CLOSE)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known[:SHOWN])}"
        raise errors.named("UnknownAction", f"nobody offers action {action!r} here; {hint}") or exc from exc


def _known(broker: str | None) -> list[str]:
    """As far as whoever keeps tasks knows, by its app or by the tasks it saw. Only a hint: no answer is no error."""
    with suppress(CanoaError), closing(open_door(broker, is_hurried=True)) as door:
        offered = [each.action for each in door.actions()]
        return offered or sorted({each.action for each in door.tasks(limit=LOOK_AT_TASKS).tasks} - {""})
    return []
