"""What `canoa up` and `canoa manager` say when they are ready: where to look, and what to do next, ready to be pasted
into another shell.
"""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from canoa.cli.output import program, say
from canoa.errors import WrongUse

if TYPE_CHECKING:
    from canoa.action import Action
    from canoa.app import Canoa

_SAMPLES: dict[type, Any] = {
    msgspec.inspect.IntType: 1,
    msgspec.inspect.FloatType: 1.5,
    msgspec.inspect.BoolType: True,
    msgspec.inspect.ListType: [],
    msgspec.inspect.DictType: {},
    msgspec.inspect.AnyType: None,
}


def greet(app: Canoa, target: str, url: str, *, token: str, unfinished: int) -> None:
    say(f"canoa {importlib.metadata.version('canoa')} runs {app.name}: {', '.join(app.actions)}")
    if unfinished:
        say(f"  again  what was accepted before and has not ended: {unfinished}")
    say(f"  look   {url}/docs  (token {token})")
    say("  next   in another shell, in this folder:" if app.settings.is_memory else "  next   in another shell:")
    say(f"         {_call(app, shlex.quote(target))}")
    say("  stop   Ctrl-C; running actions may finish, the others wait for the next start")


def greet_manager(url: str) -> None:
    """On a terminal alone: elsewhere its log says all that is of use there."""
    if not sys.stderr.isatty():
        return
    say(f"canoa {importlib.metadata.version('canoa')} routes tasks to the nodes on this broker")
    say(f"  look   {url}/docs")
    say("  next   in another shell, with the same broker:")
    say(f"         {program()} worker module:app --layer edge --site natal")
    say(f"         {program()} nodes")
    say("  stop   Ctrl-C; what was accepted waits for the next manager")


def _call(app: Canoa, target: str) -> str:
    """An action that can be called with made-up arguments; where there is none, the list of all."""
    for action in app.actions.values():
        sample = sample_arguments(action)
        if sample is not None:
            return f"{program()} call {action.name} {shlex.quote(sample)}"
    return f"{program()} actions {target}"


def sample_arguments(action: Action[..., Any, Any]) -> str | None:
    """A JSON object the action accepts; None where one cannot be made up."""
    info = msgspec.inspect.type_info(action.signature.arguments_type)
    assert isinstance(info, msgspec.inspect.StructType)
    text = json.dumps({field.encode_name: _sample(field) for field in info.fields if field.required})
    try:
        action.signature.decode(text.encode(), None)
    except WrongUse:
        return None
    return text


def _sample(field: msgspec.inspect.Field) -> Any:
    if isinstance(field.type, msgspec.inspect.StrType):
        return field.encode_name
    return _SAMPLES.get(type(field.type))
