"""Names of actions and tasks: `<app>.<name>` for people, `urn:sapparchi:Action:<app>.<name>` on the wire between nodes.

A name becomes part of queue names, routing keys and MQTT topics, so its alphabet is what is safe in all of them. An
app's own actions have two parts; those of other nodes may have more.
"""

from __future__ import annotations

import re

from canoa.errors import WrongUse
from canoa.vocabulary import ActionName

ACTION_PREFIX = "urn:sapparchi:Action:"
TASK_PREFIX = "urn:sapparchi:Task:"

MAX_NAME_CHARS = 161
"""Two parts at their longest. The longest queue name made of it stays below AMQP's 255 bytes."""

_PART = re.compile(r"[A-Za-z0-9_-]{1,80}")
_PARTS = re.compile(r"[A-Za-z0-9_-]{1,80}(\.[A-Za-z0-9_-]{1,80})*")


def checked_part(what: str, text: str) -> str:
    """An app's or a function's name that is safe in queue names and topics, or `WrongUse`."""
    if not _PART.fullmatch(text):
        raise WrongUse(f"{what} {text!r:.100} cannot be a name; use 1 to 80 letters, digits, '-' or '_'")
    return text


def action_name(text: str) -> ActionName:
    """Accepts the short form and the URN; raises `WrongUse` for anything else."""
    name = text.removeprefix(ACTION_PREFIX)
    if "." not in name or not _is_dotted(name):
        raise WrongUse(f"{text!r:.200} is not an action's name; write <app>.<action>, such as shop.resize")
    return ActionName(name)


def action_urn(name: ActionName) -> str:
    return ACTION_PREFIX + name


def task_name(text: str) -> str:
    """A plan's name, short or as URN; raises `WrongUse` for anything else. An action's name is one as well."""
    name = text.removeprefix(TASK_PREFIX)
    if not _is_dotted(name):
        raise WrongUse(
            f"{text!r:.200} is not a plan's name; use letters, digits, '-', '_' and '.', such as power-factor"
        )
    return name


def task_urn(name: str) -> str:
    return TASK_PREFIX + name


def _is_dotted(name: str) -> bool:
    return len(name) <= MAX_NAME_CHARS and _PARTS.fullmatch(name) is not None
