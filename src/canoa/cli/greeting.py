"""What `canoa up` says when it is ready: where to look, and what to do next, ready to be pasted into another shell."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
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


def greet(app: Canoa, target: str, url: str) -> None:
    say(f"canoa {importlib.metadata.version('canoa')} runs {app.name}: {', '.join(app.actions)}")
    say(f"  look   {url}/healthz  {url}/metrics")
    if app.settings.is_memory:
        say("  next   the memory broker is for this process alone; with RabbitMQ, in another shell:")
        commands = _from_nothing(app, shlex.quote(target))
    else:
        say("  next   in another shell, with CANOA_BROKER set to the same URL:")
        commands = [_call(app, shlex.quote(target))]
    for command in commands:
        say(f"         {command}")
    say("  stop   Ctrl-C; running actions may finish")


def _from_nothing(app: Canoa, target: str) -> list[str]:
    return [
        f"export CANOA_BROKER=$({program()} site start)",
        f"{program()} actions declare {target}",  # or the call below would come before the worker is there
        f"{program()} worker {target} &",
        _call(app, target),
    ]


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
