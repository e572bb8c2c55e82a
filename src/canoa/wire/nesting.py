"""How deep a body may nest, told from its bytes alone.

The decoder recurses in C and stops at the interpreter's own recursion limit: about 390 bytes of stack per level, so
the default of 1,000 levels overflows a thread with a 256 KiB stack, and a raised limit overflows any. The bound here
is a rule of the wire instead: the same on every node, whatever its interpreter, its stacks and its settings.

Bodies that are too short, or have too few opening brackets, to nest that deep cost next to nothing; only the others
are walked. What is malformed is left to the decoder, which stops where the format does.
"""

from __future__ import annotations

from itertools import accumulate

MAX_DEPTH = 200
"""Fits a stack of 128 KiB, the smallest default for threads that is in use (musl)."""

_JSON_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_JSON_NO_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))

_MSGPACK_OPENERS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
_MSGPACK_WIDTH = {  # bytes that hold the length or the count
    **{0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4},  # bytes, extensions, strings
    **{0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4},  # arrays, maps
}


def _msgpack_token_bytes(byte: int) -> int:
    """The size of a token that starts with this byte; 0 where that depends on what follows."""
    if byte in _MSGPACK_OPENERS or byte in _MSGPACK_WIDTH:
        return 0
    if 0xA0 <= byte <= 0xBF:
        return 1 + (byte & 0x1F)  # a short string
    numbers = {0xCC: 2, 0xD0: 2, 0xCD: 3, 0xD1: 3, 0xCA: 5, 0xCE: 5, 0xD2: 5, 0xCB: 9, 0xCF: 9, 0xD3: 9}
    extensions = {0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18}
    return numbers.get(byte) or extensions.get(byte) or 1


_MSGPACK_TOKEN_BYTES = tuple(map(_msgpack_token_bytes, range(256)))


def json_is_too_deep(body: bytes) -> bool:
    if len(body) <= MAX_DEPTH or not _has_many_brackets(body):
        return False
    # Escapes first: after them every quote opens or closes a string. A run of backslashes starts an escape, so
    # removing pairs from its left never tears one apart.
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = body.translate(None, _JSON_NO_STRUCTURE).split(b'"')[::2]
    steps = map(_JSON_STEP.__getitem__, b"".join(outside_strings))
    return max(accumulate(steps), default=0) > MAX_DEPTH


def _has_many_brackets(body: bytes) -> bool:
    """Whether there are enough to matter. `find` is ten times as fast as `count` where there are few."""
    found = 0
    for bracket in (b"[", b"{"):
        at = body.find(bracket)
        while at >= 0:
            found += 1
            if found > MAX_DEPTH:
                return True
            at = body.find(bracket, at + 1)
    return False


def msgpack_is_too_deep(body: bytes) -> bool:
    if len(body) <= MAX_DEPTH or len(body) - len(body.translate(None, _MSGPACK_OPENERS)) <= MAX_DEPTH:
        return False
    at, end = 0, len(body)
    left = 1  # items still to come in the innermost open container
    outer: list[int] = []  # the same for those around it
    while at < end:
        byte = body[at]
        left -= 1
        if size := _MSGPACK_TOKEN_BYTES[byte]:
            at += size
        elif byte in _MSGPACK_OPENERS:
            outer.append(left)
            if len(outer) > MAX_DEPTH:
                return True
            left, at = _open_msgpack(body, at)
        else:
            at = _skip_msgpack(body, at)
        while not left:
            if not outer:
                return False
            left = outer.pop()
    return False


def _open_msgpack(body: bytes, at: int) -> tuple[int, int]:
    """How many items the array or map at `at` holds, and where the first one starts."""
    byte = body[at]
    if byte < 0x90:
        return 2 * (byte & 0x0F), at + 1
    if byte < 0xA0:
        return byte & 0x0F, at + 1
    start = at + 1 + _MSGPACK_WIDTH[byte]
    count = int.from_bytes(body[at + 1 : start])
    return 2 * count if byte >= 0xDE else count, start


def _skip_msgpack(body: bytes, at: int) -> int:
    """Where the string, the bytes or the extension at `at` ends."""
    byte = body[at]
    start = at + 1 + _MSGPACK_WIDTH[byte]
    is_extension = 0xC7 <= byte <= 0xC9  # one more byte: its type
    return start + int.from_bytes(body[at + 1 : start]) + is_extension
