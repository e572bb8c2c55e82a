"""What one program owes the broker: the messages that its moves left to be sent, in bundles of one row each.

A bundle is written in the transaction that makes its messages necessary, and deleted once all of them were paid: so
the outbox costs one row for many messages. Pure: adapters write what stands here.
"""

from __future__ import annotations

import secrets
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from canoa.broker.port import Publication
from canoa.store.packing import pack_all, unpack_publications, unpack_texts
from canoa.store.routed_port import HOLD_OWED_MS, Owed
from canoa.wire.sapparchi import NODE_ID, parse_request_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

Row: TypeAlias = tuple[int, int, bytes, bytes]
"""Its key, until when it is held, the keys of its messages, the messages."""

_BITS: Final = 63  # of a row's number: two alike are as good as impossible while both are owed

MAX_MESSAGES: Final = 100
"""In one bundle. More spare rows; fewer are sent again when a manager dies that had sent a part of them."""

MAX_BYTES: Final = 1024 * 1024
"""Of bodies in one bundle, unless it has only one."""


class Bundle(msgspec.Struct):
    """Messages by their keys. `number` is the row's."""

    number: int
    taken_until_ms: int
    left: dict[str, Publication]
    written: int = 0  # how many of them the row has

    def row(self) -> Row:
        return self.number, self.taken_until_ms, pack_all([*self.left]), pack_all([*self.left.values()])

    def attempts(self) -> dict[str, tuple[str, int, int, int]]:
        """What goes to nodes: task id, step, attempt and send, by key."""
        to_nodes = (key for key, each in self.left.items() if NODE_ID in each.message.headers)
        return {key: request for key in to_nodes if (request := parse_request_id(key)) is not None}


def bundle_of(number: int, taken_until_ms: int, keys: bytes, publications: bytes) -> Bundle:
    """From its row."""
    left = dict(zip(unpack_texts(keys), unpack_publications(publications), strict=True))
    return Bundle(number, taken_until_ms, left, written=len(left))


class Free(NamedTuple):
    """When a bundle is held by nobody: its time is over, or was set by a clock that has gone back since."""

    until_ms: int
    beyond_ms: int

    @classmethod
    def at(cls, now_ms: int, *, for_ms: int) -> Self:
        return cls(now_ms, now_ms + 2 * max(for_ms, HOLD_OWED_MS))

    def has(self, bundle: Bundle) -> bool:
        return not self.until_ms < bundle.taken_until_ms <= self.beyond_ms


class Taking:
    """Bundles that nobody holds, on their way to one who sends them now, and holds them `for_ms`: at most `limit`
    messages."""

    def __init__(self, limit: int, debts: Debts, *, now_ms: int, for_ms: int) -> None:
        self.free = Free.at(now_ms, for_ms=for_ms)
        self.owed: list[Owed] = []
        self.spent = debts.spent()
        self.emptied: list[int] = []  # rows of which nothing is left, to delete
        self.rests: list[Bundle] = []  # to write again
        self.bundles: list[Bundle] = []  # to insert
        self._ended: list[str] = []  # keys of messages that nobody needs any more
        self._limit = limit
        self._debts = debts
        self._until_ms = now_ms + for_ms

    @property
    def is_full(self) -> bool:
        return len(self.owed) >= self._limit

    def add(self, bundle: Bundle, is_out: Mapping[str, bool]) -> None:
        """`is_out`: whether the attempt is, by its key. One that is not has been answered, lost or called off."""
        gone = [key for key in bundle.left if not is_out.get(key, True)]
        for key in gone:
            del bundle.left[key]
        for key in [*bundle.left][: self._limit - len(self.owed)]:
            self.owed.append(Owed(key=key, publication=bundle.left.pop(key)))
        self._ended += gone
        if bundle.left:
            self.rests.append(bundle)
        else:
            self.emptied.append(bundle.number)

    def close(self) -> None:
        """After the last one: say what is to be inserted."""
        self.owed.sort(key=attrgetter("key"))
        self.bundles = self._debts.bundled(self.owed, until_ms=self._until_ms)

    def settle(self) -> None:
        """All of it is committed."""
        self._debts.wrote(self.bundles, deleted=self.spent)
        for key in self._ended:
            self._debts.pay(key)
        self._debts.forget(self.free)


class Debts:
    def __init__(self) -> None:
        self._bundles: dict[str, Bundle] = {}  # by the key of each message that is left
        self._spent: dict[int, None] = {}  # rows of which nothing is left

    def owes(self, key: str) -> bool:
        return key in self._bundles

    def rows(self) -> set[int]:
        """Of which it is known here what is left, whatever they say."""
        return {bundle.number for bundle in self._bundles.values()} | self._spent.keys()

    def new_bundles(self, owed: Iterable[Owed], *, until_ms: int) -> list[Bundle]:
        """To write: of what is not owed yet."""
        return self.bundled((each for each in owed if each.key not in self._bundles), until_ms=until_ms)

    def bundled(self, owed: Iterable[Owed], *, until_ms: int) -> list[Bundle]:
        bundles: list[Bundle] = []
        size_bytes = 0
        for each in owed:
            size_bytes += len(each.publication.message.body)
            if not bundles or len(bundles[-1].left) >= MAX_MESSAGES or size_bytes > MAX_BYTES:
                bundles.append(Bundle(secrets.randbits(_BITS), until_ms, {}))
                size_bytes = len(each.publication.message.body)
            bundles[-1].left[each.key] = each.publication
        return bundles

    def wrote(self, bundles: Iterable[Bundle], *, deleted: Iterable[int]) -> None:
        """And committed it. `deleted`: of what was `spent`."""
        for bundle in bundles:
            bundle.written = len(bundle.left)
            for key in bundle.left:
                if key in self._bundles:  # its old row does not have it any more
                    self._bundles[key].left.pop(key, None)
                self._bundles[key] = bundle
        for row in deleted:
            self._spent.pop(row, None)

    def pay(self, key: str) -> None:
        bundle = self._bundles.pop(key, None)
        if bundle is not None:
            bundle.left.pop(key, None)
            if not bundle.left:
                self._spent[bundle.number] = None

    def forget(self, free: Free) -> None:
        """What is held no longer. Others may have sent and paid it since: only its row can tell."""
        for key in [key for key, bundle in self._bundles.items() if free.has(bundle)]:
            del self._bundles[key]

    def spent(self) -> list[int]:
        """Rows to delete: all that they owed was paid."""
        return [*self._spent]

    def shrunk(self) -> list[Row]:
        """Rows to write again: some of what they owe was paid."""
        bundles = {bundle.number: bundle for bundle in self._bundles.values() if len(bundle.left) < bundle.written}
        for bundle in bundles.values():
            bundle.written = len(bundle.left)  # should that not be written, the row is only longer than it need be
        return [bundle.row() for bundle in bundles.values()]
