"""Values to bytes and back, as JSON or msgpack, and what is refused on the way.

A `Codec` knows one type. Which codec a message needs, and its headers, are in `task.py`; compression is another layer.

What msgspec leaves open is settled here, and the same on both sides:

* NaN and infinities: msgpack carries them. JSON has none, and msgspec would write `null`; they are refused instead.
* Integers: JSON up to the interpreter's 4,300 digits, msgpack 64 bits.
* Duplicate keys: the last one wins.
* Nesting: at most `nesting.MAX_DEPTH` levels, for encoding too, so that what was sent can be read.
"""

from __future__ import annotations

import enum
import json
import re
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from canoa.errors import Undecodable, WrongUse
from canoa.wire.nesting import MAX_DEPTH, json_is_too_deep, msgpack_is_too_deep

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class ContentType(enum.StrEnum):
    JSON = "application/json"
    MSGPACK = "application/msgpack"


class Unencodable(WrongUse):
    """A value that cannot travel: its type, its range or its shape has no place in the format."""


class TypeMismatch(WrongUse):
    """Sound JSON or msgpack that does not fit the type. `path` says where (`$.width`), `detail` what was expected."""

    def __init__(self, *, wanted: str, detail: str, path: str) -> None:
        super().__init__(f"{detail}, at `{path}`; send a value that fits `{wanted}`")
        self.detail = detail
        self.path = path


class _Format(NamedTuple):
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    is_too_deep: Callable[[bytes], bool]


class Codec(Generic[T]):
    """Encodes and decodes values of one type. Building one is slow (the type is compiled): keep it.

    Raises `TypeError` at once when msgspec has no way to carry the type.
    """

    __slots__ = ("_formats", "_wanted")

    def __init__(self, type_: Any) -> None:
        self._wanted: str = getattr(type_, "__name__", None) or str(type_)
        as_json = _Format(_encode_json, msgspec.json.Decoder(type_).decode, json_is_too_deep)
        as_msgpack = _Format(_encode_msgpack, msgspec.msgpack.Decoder(type_).decode, msgpack_is_too_deep)
        self._formats: dict[str | None, _Format] = {
            None: as_json,
            ContentType.JSON.value: as_json,
            ContentType.MSGPACK.value: as_msgpack,
        }

    def encode(self, value: T, content_type: ContentType = ContentType.JSON) -> bytes:
        """The value as bytes, or `Unencodable`. Its type is not checked: the receiver's decoder does that."""
        form = self._formats[content_type]
        try:
            body = form.encode(value)
        except RecursionError as exc:
            raise _too_deep_to_send(value) from exc
        except (TypeError, ValueError, OverflowError) as exc:
            raise Unencodable(f"{_spell(value)} cannot be sent as {content_type}: {exc}; {_remedy(exc)}") from exc
        if len(body) > MAX_DEPTH and form.is_too_deep(body):
            raise _too_deep_to_send(value)
        return body

    def decode(self, body: bytes, content_type: str | None) -> T:
        """The value, or `Undecodable` (not JSON or msgpack at all), or `TypeMismatch` (of another type).

        No content type means JSON.
        """
        form = self._formats.get(content_type) or self._formats[_known_content_type(content_type)]
        if len(body) > MAX_DEPTH and form.is_too_deep(body):
            raise _too_deep_to_read()
        return self._decode(form, body, content_type)

    def decode_own(self, body: bytes, content_type: ContentType) -> T:
        """What `encode` gave just now, read back: its depth is known."""
        return self._decode(self._formats[content_type], body, content_type)

    def _decode(self, form: _Format, body: bytes, content_type: str | None) -> T:
        try:
            return form.decode(body)  # type: ignore[no-any-return]  # the decoder was built for T
        except msgspec.ValidationError as exc:
            detail, _, path = str(exc).partition(" - at ")
            raise TypeMismatch(wanted=self._wanted, detail=detail, path=path.strip("`") or "$") from exc
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise Undecodable(
                f"a body of {len(body):,} bytes is not {content_type or ContentType.JSON}: {exc}; "
                f"check how the sender encodes it, and the content type it states"
            ) from exc
        except RecursionError as exc:
            raise _too_deep_to_read() from exc
        except Exception as exc:  # raised by the type's own checks (`__post_init__`)
            raise TypeMismatch(wanted=self._wanted, detail=f"{type(exc).__name__}: {exc}", path="$") from exc


_json_encode = msgspec.json.Encoder().encode
_encode_msgpack = msgspec.msgpack.Encoder().encode
_finite_only = json.JSONEncoder(allow_nan=False, check_circular=False).encode
_looks_not_finite = re.compile(
    rb"\xcb[\x7f\xff][\xf0-\xff]"
).search  # every NaN and infinity in msgpack, and some strings


def _encode_json(value: Any) -> bytes:
    body = _json_encode(value)
    if value is not None and body.find(b"null") >= 0:  # `in` takes twice as long: it tries an integer first
        _refuse_not_finite(value)
    return body


def _refuse_not_finite(value: Any) -> None:
    """A null was None, or a float that JSON cannot express: only a second look at the value can tell."""
    try:
        if not _looks_not_finite(_encode_msgpack(value)):
            return
    except OverflowError:  # an integer that only JSON takes
        pass
    try:
        _finite_only(msgspec.to_builtins(value, str_keys=True, enc_hook=_as_nothing))
    except ValueError as exc:
        raise Unencodable(
            f"{_spell(value)} holds NaN or an infinity, which JSON cannot carry; "
            f"use None or a string in its place, or send it as {ContentType.MSGPACK}"
        ) from exc


def _as_nothing(_: object) -> None:
    """For what only the JSON encoder takes (`msgspec.Raw`): it holds no floats of ours."""


def _spell(value: object) -> str:
    return f"a value of type {type(value).__qualname__!r}"


def _remedy(exc: Exception) -> str:
    match exc:
        case UnicodeEncodeError():
            return "send text without lone surrogates, or bytes"
        case OverflowError():
            return "send a number of that size as JSON or as a string"
        case ValueError():
            return "send it as a string"
        case _:
            return "use str, numbers, bool, None, bytes, lists, dicts, datetimes, dataclasses or msgspec structs"


def _too_deep_to_send(value: object) -> Unencodable:
    return Unencodable(
        f"{_spell(value)} is nested too deeply, or contains itself: more than {MAX_DEPTH} levels; flatten it"
    )


def _too_deep_to_read() -> Undecodable:
    return Undecodable(f"the body is nested too deeply: more than {MAX_DEPTH} levels; flatten it")


def _known_content_type(content_type: str | None) -> str:
    """For senders that write it in their own way: upper case, or with a charset."""
    name, _, parameters = (content_type or "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if (known := name.strip().lower()) in tuple(ContentType) and charset in ("", "charset=utf-8", "charset=utf8"):
        return known
    names = ", ".join(repr(each.value) for each in ContentType)
    raise Undecodable(f"content type {content_type!r:.100} is unknown; send one of {names}")


ANY: Codec[Any] = Codec(Any)
