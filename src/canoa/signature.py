"""A function's parameters as a type that can travel: what the caller binds is what the worker calls.

Compiled once, when the action is defined. The arguments are one object keyed by parameter; defaults stay out of it, so
they are the worker's. `*args` and `**kwargs` travel as a list and an object under their own names.
"""

from __future__ import annotations

import difflib
import inspect
import typing
from typing import Any

import msgspec

from canoa.context import Context
from canoa.errors import ActionDefinitionError, ArgumentsRefused
from canoa.wire.codec import ANY, Codec, ContentType, TypeMismatch, Unencodable

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

_KINDS = inspect.Parameter
_VARIADIC = (_KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD)
_raw_value = msgspec.json.Decoder(msgspec.Raw).decode
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_UNKNOWN = "Object contains unknown field "  # msgspec's words for a key that is no parameter
_MUTABLE = (list, dict, set, bytearray, msgspec.Struct)


class Arguments(msgspec.Struct):
    """The base of every action's compiled parameters."""


class Signature:
    """What an action takes and gives. Raises `ActionDefinitionError` for what cannot travel."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.action = name
        hints = _hints(function, name)
        # With `from __future__ import annotations` they are strings, which people would be shown in quotes.
        parameters = [
            each.replace(annotation=hints.get(each.name, each.annotation))
            for each in inspect.signature(function).parameters.values()
        ]
        self.takes_context = bool(parameters) and hints.get(parameters[0].name) is Context
        if self.takes_context:
            parameters = parameters[1:]
        if any(hints.get(each.name) is Context for each in parameters):
            raise ActionDefinitionError(f"action {name!r}: its context must be its first parameter, and the only one")
        self._parameters = parameters
        self._has_variadic = any(each.kind in _VARIADIC for each in parameters)
        self._positional = [
            each.name for each in parameters if each.kind in (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD)
        ]
        self._names = frozenset(each.name for each in parameters)
        self._sole_name = _sole_name(parameters)
        self._needs_some = any(each.default is each.empty and each.kind not in _VARIADIC for each in parameters)
        self.arguments_type = _arguments_type(name, parameters, hints)
        self.arguments: Codec[Any] = _codec(name, "parameters", self.arguments_type)
        self._sole_takes_objects = self._sole_name is not None and _takes_objects(self._type_of(self._sole_name))
        self.result: Codec[Any] = _codec(name, "result", hints.get("return", Any))

    def names(self) -> list[str]:
        """Of the parameters that take one value each."""
        return [each.name for each in self._parameters if each.kind not in _VARIADIC]

    # --- The caller's side ----------------------------------------------------------------------

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], content_type: ContentType) -> bytes:
        """Bind and encode, or `ArgumentsRefused`. What comes out has been read back as the worker will read it."""
        try:
            bound = self._bind(args, kwargs)
            body = self.arguments.encode(bound, content_type)
            self.arguments.decode_own(body, content_type)
        except TypeMismatch as exc:
            raise ArgumentsRefused(f"{self.action}: {exc.detail}, at `{exc.path}`; {self._usage()}") from exc
        except TypeError as exc:
            raise ArgumentsRefused(f"{self.action}: {self._unbound(exc, kwargs)} {self._usage()}") from exc
        except Unencodable as exc:
            raise ArgumentsRefused(f"{self.action}: {exc}; {self._usage()}") from exc
        return body

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._has_variadic:
            return self.arguments_type(*args, **kwargs)
        return self.arguments_type(**self._by_parameter(args, kwargs))

    def _by_parameter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = inspect.Signature(self._parameters).bind(*args, **kwargs).arguments
        return {key: list(val) if isinstance(val, tuple) else val for key, val in bound.items()}

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """By parameter, those with defaults left out; the values are not looked at. Or `ArgumentsRefused`."""
        try:
            return self._by_parameter(args, kwargs)
        except TypeError as exc:
            raise ArgumentsRefused(f"{self.action}: {self._unbound(exc, kwargs)} {self._usage()}") from exc

    def as_sent(self, name: str, value: Any) -> Any:
        """One parameter's value, checked and as plain as it travels in JSON. Or `ArgumentsRefused`."""
        codec = Codec[Any](self._type_of(name))
        try:
            body = codec.encode(value)
            codec.decode_own(body, ContentType.JSON)
        except TypeMismatch as exc:
            raise ArgumentsRefused(f"{self.action}: {name}: {exc.detail}, at `{exc.path}`; {self._usage()}") from exc
        except Unencodable as exc:
            raise ArgumentsRefused(f"{self.action}: {name}: {exc}; {self._usage()}") from exc
        return ANY.decode_own(body, ContentType.JSON)

    def _type_of(self, name: str) -> Any:
        (type_,) = (each.type for each in msgspec.structs.fields(self.arguments_type) if each.name == name)
        return type_

    def _usage(self) -> str:
        return f"it takes {inspect.Signature(self._parameters)}"

    def _unbound(self, exc: TypeError, kwargs: dict[str, Any]) -> str:
        """Python would tell of what is missing, where its name was mistyped."""
        takes_any = any(each.kind is _KINDS.VAR_KEYWORD for each in self._parameters)
        return ("" if takes_any else self._unknown(kwargs)) or f"{exc};"

    def _unknown(self, names: Iterable[str]) -> str:
        """Of the first one that is no parameter, what to say. Empty: all of them are."""
        name = next((each for each in names if each not in self._names), None)
        if name is None:
            return ""
        close = difflib.get_close_matches(name[:80], self._names, n=1)
        return f"there is no parameter {name!r:.80};{f' did you mean {close[0]!r}?' if close else ''}"

    # --- The worker's side ----------------------------------------------------------------------

    def decode(self, body: bytes, content_type: str | None) -> Any:
        """The arguments, or `ArgumentsRefused` (they do not fit) or `Undecodable` (they are not what they claim)."""
        try:
            return self.arguments.decode(body, content_type)
        except TypeMismatch as exc:
            raise ArgumentsRefused(f"{self.action}: {self._misfit(exc, body)} {self._usage()}") from exc

    def _misfit(self, exc: TypeMismatch, body: bytes) -> str:
        if exc.path == "$" and exc.detail.startswith(_UNKNOWN):
            return self._unknown([exc.detail.removeprefix(_UNKNOWN).strip("`")])
        return f"{exc.detail}, at `{exc.path}`;{self._meant(exc, body)}"

    def _meant(self, exc: TypeMismatch, body: bytes) -> str:
        """Whose parameter was mistyped, an object that was to be by parameter went whole into the only one."""
        sole = self._sole_name
        if sole is None or not exc.path.startswith(f"$.{sole}"):
            return ""
        keys = _keys(bytes(_raw_object(body).get(sole, b""))) if _keys(body) == {sole} else None
        close = difflib.get_close_matches(sole, [each[:80] for each in keys or ()], n=1)
        return f" if {close[0]!r} is to be a parameter, did you mean {sole!r}?" if close else ""

    def routed_body(self, data: bytes) -> bytes:
        """Any JSON value as a body of arguments: a step's input is what came out before it, and knows no parameters.

        An object whose keys all are parameters is one already. Otherwise, where one parameter is enough, and can be
        what came, the value is that parameter; and an action that takes nothing gets nothing. What fits in no way
        stays: `decode` refuses it.
        """
        if not self._parameters:
            return b"{}"
        keys = _keys(data)
        if self._is_body(keys) or (sole := self._sole_name) is None:
            return data
        if keys is not None and not self._sole_takes_objects:
            return data
        try:
            _raw_value(data)  # a whole value: half a one could bring parameters of its own
        except (msgspec.DecodeError, RecursionError):
            return data
        return b'{"%s":%s}' % (sole.encode(), data)

    def _is_body(self, keys: Collection[str] | None) -> bool:
        # Nothing is no argument where one must be given: then it is the value.
        return keys is not None and self._names.issuperset(keys) and bool(keys or not self._needs_some)

    def takes_object(self, keys: Collection[str]) -> bool:
        """Whether a step's input with these keys is as it should be: by parameter, or whole in a parameter of another
        name."""
        if not self._parameters or (self._names.issuperset(keys) and self._needed().issubset(keys)):
            return True
        return self._sole_takes_objects and self._sole_name not in keys

    def check_object(self, keys: Collection[str]) -> None:
        """Raises `ArgumentsRefused` where it does not take such an object."""
        if not self.takes_object(keys):
            missing = f"parameter {', '.join(map(repr, self._needed().difference(keys)))} is missing;"
            raise ArgumentsRefused(f"{self.action}: {self._unknown(keys) or missing} {self._usage()}")

    def _needed(self) -> set[str]:
        return {each.name for each in self._parameters if each.default is each.empty and each.kind not in _VARIADIC}

    def call_form(self, arguments: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """As `function(*args, **kwargs)` wants them, or `ArgumentsRefused`."""
        fields = msgspec.structs.astuple(arguments)
        count = len(self._positional)
        if len(fields) == count:
            return fields, {}
        return self._spread(fields, count) if self._has_variadic else (fields[:count], self._keywords(fields, count))

    def _keywords(self, fields: tuple[Any, ...], count: int) -> dict[str, Any]:
        return dict(zip(self.arguments_type.__struct_fields__[count:], fields[count:], strict=True))

    def _spread(self, fields: tuple[Any, ...], count: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, rest = fields[:count], self._keywords(fields, count)
        for parameter in self._parameters:
            if parameter.kind is _KINDS.VAR_POSITIONAL:
                args += tuple(rest.pop(parameter.name))
            elif parameter.kind is _KINDS.VAR_KEYWORD:
                more = rest.pop(parameter.name)
                self._refuse_twice(more)
                rest.update(more)
        return args, rest

    def _refuse_twice(self, more: dict[str, Any]) -> None:
        """Python's own binding cannot give a parameter twice; a body written elsewhere can."""
        named = (_KINDS.POSITIONAL_OR_KEYWORD, _KINDS.KEYWORD_ONLY)
        for each in self._parameters:
            if each.kind in named and each.name in more:
                raise ArgumentsRefused(f"{self.action}: parameter {each.name!r} is given twice; {self._usage()}")

    def describe(self) -> str:
        return str(inspect.Signature(self._parameters))


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise ActionDefinitionError(
            f"action {name!r}: its annotations name {exc.name!r}, which cannot be found when the program runs; "
            f"import it at module level, not under TYPE_CHECKING or inside a function"
        ) from exc
    except Exception as exc:  # annotations written as text are code, and may fail in any way
        raise ActionDefinitionError(f"action {name!r}: its annotations cannot be read: {exc}") from exc


def _keys(data: bytes) -> Collection[str] | None:
    """Of a JSON object; None of anything else."""
    try:
        return _raw_object(data).keys()
    except (msgspec.DecodeError, RecursionError):
        return None


def _takes_objects(type_: Any) -> bool:
    """Whether some JSON object can be of that type."""
    try:
        Codec[Any](type_).decode(b"{}", None)
    except TypeMismatch as exc:
        return not (exc.path == "$" and exc.detail.endswith("got `object`"))
    return True


def _sole_name(parameters: list[inspect.Parameter]) -> str | None:
    """Of the one parameter that must be given, or of the only one there is."""
    single = [each for each in parameters if each.kind not in _VARIADIC]
    found = [each for each in single if each.default is each.empty] or single
    return found[0].name if len(found) == 1 else None


def _arguments_type(name: str, parameters: list[inspect.Parameter], hints: dict[str, Any]) -> type[msgspec.Struct]:
    """Two structs, since msgspec says for a whole struct whether its fields may be positional."""
    positional: list[Any] = []
    named: list[Any] = []
    for each in parameters:
        into = positional if each.kind in (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD) else named
        into.append(_field(each, hints.get(each.name, Any)))
    options: Any = {"omit_defaults": True, "forbid_unknown_fields": True, "gc": False}
    title = "".join(part.title() for part in name.replace(".", "_").split("_")) + "Arguments"
    try:
        base = msgspec.defstruct(title, positional, bases=(Arguments,), **options)
        return msgspec.defstruct(title, named, bases=(base,), kw_only=True, **options) if named else base
    except (TypeError, ValueError) as exc:
        raise ActionDefinitionError(f"action {name!r}: {exc}") from exc


def _field(parameter: inspect.Parameter, hint: Any) -> Any:
    match parameter.kind:
        case _KINDS.VAR_POSITIONAL:
            return (parameter.name, list[hint], msgspec.field(default_factory=list))
        case _KINDS.VAR_KEYWORD:
            return (parameter.name, dict[str, hint], msgspec.field(default_factory=dict))
    if parameter.default is parameter.empty:
        return (parameter.name, hint)
    default = parameter.default
    if isinstance(default, _MUTABLE):  # msgspec takes no such default; these travel
        return (parameter.name, hint, msgspec.field(default_factory=lambda: default))
    return (parameter.name, hint, default)


def _codec(name: str, what: str, type_: Any) -> Codec[Any]:
    try:
        _refuse_custom(msgspec.inspect.type_info(type_))
        return Codec(type_)
    except TypeError as exc:
        raise ActionDefinitionError(
            f"action {name!r}: its {what} cannot travel: {exc}; "
            f"use str, numbers, bool, None, bytes, lists, dicts, datetimes, dataclasses or msgspec structs"
        ) from exc


def _refuse_custom(info: Any) -> None:
    """msgspec takes any class and fails at the first message; we say so when the action is defined."""
    if isinstance(info, msgspec.inspect.CustomType) and info.cls is not object:
        raise TypeError(f"{info.cls!r} is not a type that can be sent")
    inner = [getattr(info, each, None) for each in ("item_type", "key_type", "value_type", "type")]
    lists = [getattr(info, each, ()) for each in ("types", "item_types")]
    own_arguments = isinstance(info, msgspec.inspect.StructType) and issubclass(info.cls, Arguments)
    fields = [each.type for each in info.fields] if own_arguments else []
    for part in (*inner, *(each for group in lists if isinstance(group, tuple) for each in group), *fields):
        if isinstance(part, msgspec.inspect.Type):
            _refuse_custom(part)
