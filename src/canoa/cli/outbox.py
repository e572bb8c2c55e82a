"""`canoa outbox`: what a node has done and could not tell its managers yet. Reads the file, also while one writes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from canoa.cli import folder, output
from canoa.clock import as_time
from canoa.errors import SettingError
from canoa.urn import ACTION_PREFIX

if TYPE_CHECKING:
    from canoa.worker.outbox_file import Seen

NONE: Final = "none"
"""Said instead of a path: no outbox."""

COLUMNS: Final = ["outbox", "action", "answers", "bytes", "oldest"]


def outbox_of(given: str, node_id: str, *, join: bool) -> str:
    """The file of a worker; empty: none. A name that a process made up for itself comes back never again, so nobody
    would look for a file of that name."""
    if not join or given == NONE or not (given or node_id):
        return ""
    return given or str(folder.FOLDER / f"outbox-{node_id}.db")


def outbox(
    path: Annotated[
        Path | None,
        typer.Argument(help="The file. Otherwise CANOA_OUTBOX, or all of this folder's .canoa.", show_default=False),
    ] = None,
    is_all: Annotated[
        bool, typer.Option("--all", help="Also those of this folder that are empty and that no worker has any more.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show what waits in a node's outbox: answers that could not be sent yet, by action."""
    with output.errors_explained(as_json=as_json):
        from canoa.worker.outbox_file import look

        named = _named(path)
        there = [look(each) for each in named or _in_this_folder()]
        found = [each for each in there if named or is_all or _is_of_interest(each)]
        if as_json:
            output.data([_told(each) for each in found])
            return
        _show(found)
        if len(found) < len(there):
            output.say(f"left out: {len(there) - len(found)}, empty, that no worker has any more; --all shows them")


def _show(found: list[Seen]) -> None:
    now = datetime.now(UTC)
    rows = [row for each in found for row in _rows(each, now)]
    if rows:
        output.table(COLUMNS, rows)
    for each in found:
        if not each.messages:
            output.say(f"nothing waits in {each.path}")
        if each.dropped:
            output.say(f"{each.path} has dropped {each.dropped} answers for want of room")


def _is_of_interest(seen: Seen) -> bool:
    """Something is in it, or will be, or was lost."""
    return bool(seen.messages or seen.dropped or seen.is_held)


def _named(given: Path | None) -> list[Path]:
    """By whoever asks, or by a setting."""
    from canoa.settings import read

    if given is not None:
        return [given]
    named = read({}).outbox
    return [Path(named)] if named and named != NONE else []


def _in_this_folder() -> list[Path]:
    found = sorted(folder.FOLDER.glob("outbox-*.db"))
    if not found:
        raise SettingError("no outbox in this folder's .canoa; name the file, or start a worker with --node-id")
    return found


def _rows(seen: Seen, now: datetime) -> list[list[str]]:
    from canoa.cli.story import clean
    from canoa.cli.times import ago

    return [
        [
            seen.path,
            clean(each.action.removeprefix(ACTION_PREFIX)),
            str(each.messages),
            str(each.bytes),
            ago((now - as_time(each.oldest_ms)).total_seconds()),
        ]
        for each in seen.actions
    ]


def _told(seen: Seen) -> dict[str, object]:
    return {
        "path": seen.path,
        "is_held": seen.is_held,
        "messages": seen.messages,
        "bytes": seen.bytes,
        "oldest_at": None if seen.oldest_ms is None else as_time(seen.oldest_ms),
        "remembered": seen.remembered,
        "dropped": seen.dropped,
        "actions": [
            {
                "action": each.action.removeprefix(ACTION_PREFIX),
                "messages": each.messages,
                "bytes": each.bytes,
                "oldest_at": as_time(each.oldest_ms),
            }
            for each in seen.actions
        ],
    }
