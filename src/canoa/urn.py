"""Names of actions: `<app>.<name>` for people, `urn:sapparchi:Action:<app>.<name>` on the wire between nodes.

A name becomes part of queue names, routing keys and MQTT topics, so its alphabet is what is safe in all of them.
"""

from __future__ import annotations

import re

from canoa.errors import WrongUse
from canoa.vocabulary import ActionName

ACTION_PREFIX = "urn:sapparchi:Action:"
TASK_PREFIX = "urn:sapparchi:Task:"

_PART = re.compile(r"[A-Za-z0-9_-]{1,80}")


def checked_part(what: str, text: str) -> str:
    """An app's or a function's name that is safe in queue names and topics, or `WrongUse`."""
    if not _PART.fullmatch(text):
        raise WrongUse(f"{what} {text!r:.100} cannot be a name; use 1 to 80 letters, digits, '-' or '_'")
    return text


def action_name(text: str) -> ActionName:
    """Accepts the short form and the URN; raises `WrongUse` for anything else."""
    name = text.removeprefix(ACTION_PREFIX)
    app, dot, function = name.partition(".")
    if not dot or not _PART.fullmatch(app) or not _PART.fullmatch(function):
        raise WrongUse(f"{text!r:.200} is not an action's name; write <app>.<action>, such as shop.resize")
    return ActionName(name)


def action_urn(name: ActionName) -> str:
    return ACTION_PREFIX + name
