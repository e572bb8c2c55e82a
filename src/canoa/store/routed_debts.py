"""What one program owes the broker: the messages that its moves left to be sent, in bills of one row each.

A bill is written in the transaction that makes its messages necessary, and deleted once all of them were paid: so
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
"""In one bill. More spare rows; fewer are sent again when a manager dies that had sent a part of them."""

PAID_TOGETHER_MS: Final = 2_000
"""Within which the messages of a bill mostly are. Only of one that is older its row is worth writing again, without
those that were paid."""

MAX_BYTES: Final = 1024 * 1024
"""Of bodies in one bill, unless it has only one."""


class Bill(msgspec.Struct):
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


def bill_of(number: int, taken_until_ms: int, keys: bytes, publications: bytes) -> Bill:
    """From its row."""
    left = dict(zip(unpack_texts(keys), unpack_publications(publications), strict=True))
    return Bill(number, taken_until_ms, left, written=len(left))


class Free(NamedTuple):
    """When a bill is held by nobody: its time is over, or was set by a clock that has gone back since."""

    until_ms: int
    beyond_ms: int

    @classmethod
    def at(cls, now_ms: int, *, for_ms: int) -> Self:
        return cls(now_ms, now_ms + 2 * max(for_ms, HOLD_OWED_MS))

    def has(self, bill: Bill) -> bool:
        return not self.until_ms < bill.taken_until_ms <= self.beyond_ms


class Taking:
    """Bills that nobody holds, on their way to one who sends them now, and holds them `for_ms`: at most `limit`
    messages."""

    def __init__(self, limit: int, debts: Debts, *, now_ms: int, for_ms: int) -> None:
        self.free = Free.at(now_ms, for_ms=for_ms)
        self.owed: list[Owed] = []
        self.spent = debts.spent()
        self.emptied: list[int] = []  # rows of which nothing is left, to delete
        self.rests: list[Bill] = []  # to write again
        self.bills: list[Bill] = []  # to insert
        self._ended: list[str] = []  # keys of messages that nobody needs any more
        self._limit = limit
        self._debts = debts
        self._until_ms = now_ms + for_ms

    @property
    def is_full(self) -> bool:
        return len(self.owed) >= self._limit

    def add(self, bill: Bill, is_out: Mapping[str, bool]) -> None:
        """`is_out`: whether the attempt is, by its key. One that is not has been answered, lost or called off."""
        gone = [key for key in bill.left if not is_out.get(key, True)]
        for key in gone:
            del bill.left[key]
        for key in [*bill.left][: self._limit - len(self.owed)]:
            self.owed.append(Owed(key=key, publication=bill.left.pop(key)))
        self._ended += gone
        if bill.left:
            self.rests.append(bill)
        else:
            self.emptied.append(bill.number)

    def close(self) -> None:
        """After the last one: say what is to be inserted."""
        self.owed.sort(key=attrgetter("key"))
        self.bills = self._debts.billed(self.owed, until_ms=self._until_ms)

    def settle(self) -> None:
        """All of it is committed."""
        self._debts.wrote(self.bills, deleted=self.spent)
        self._debts.pay(self._ended)
        self._debts.forget(self.free)


class Debts:
    def __init__(self) -> None:
        self._bills: dict[str, Bill] = {}  # by the key of each message that is left
        self._spent: dict[int, None] = {}  # rows of which nothing is left

    def owes(self, key: str) -> bool:
        return key in self._bills

    def rows(self) -> set[int]:
        """Of which it is known here what is left, whatever they say."""
        return {bill.number for bill in self._bills.values()} | self._spent.keys()

    def new_bills(self, owed: Iterable[Owed], *, until_ms: int) -> list[Bill]:
        """To write: of what is not owed yet."""
        return self.billed((each for each in owed if each.key not in self._bills), until_ms=until_ms)

    def billed(self, owed: Iterable[Owed], *, until_ms: int) -> list[Bill]:
        bills: list[Bill] = []
        size_bytes = 0
        for each in owed:
            size_bytes += len(each.publication.message.body)
            if not bills or len(bills[-1].left) >= MAX_MESSAGES or size_bytes > MAX_BYTES:
                bills.append(Bill(secrets.randbits(_BITS), until_ms, {}))
                size_bytes = len(each.publication.message.body)
            bills[-1].left[each.key] = each.publication
        return bills

    def wrote(self, bills: Iterable[Bill], *, deleted: Iterable[int]) -> None:
        """And committed it. `deleted`: of what was `spent`."""
        for bill in bills:
            bill.written = len(bill.left)
            for key in bill.left:
                if key in self._bills:  # its old row does not have it any more
                    self._bills[key].left.pop(key, None)
                self._bills[key] = bill
        for row in deleted:
            self._spent.pop(row, None)

    def pay(self, keys: Iterable[str]) -> None:
        """It is owed no longer, whether it was or not."""
        for key in keys:
            bill = self._bills.pop(key, None)
            if bill is not None:
                bill.left.pop(key, None)
                if not bill.left:
                    self._spent[bill.number] = None

    def want_a_look(self, free: Free) -> bool:
        """Some are held no longer, or a part of them was paid, and the rest is not since. Also while the writer's
        thread notes what it wrote: so from a copy."""
        paid_together_ms = free.until_ms + HOLD_OWED_MS - PAID_TOGETHER_MS
        return any(
            free.has(bill) or (len(bill.left) < bill.written and bill.taken_until_ms <= paid_together_ms)
            for bill in [*self._bills.values()]
        )

    def forget(self, free: Free) -> None:
        """What is held no longer. Others may have sent and paid it since: only its row can tell."""
        for key in [key for key, bill in self._bills.items() if free.has(bill)]:
            del self._bills[key]

    def spent(self) -> list[int]:
        """Rows to delete: all that they owed was paid."""
        return [*self._spent]

    def shrunk(self) -> list[Row]:
        """Rows to write again: some of what they owe was paid."""
        bills = {bill.number: bill for bill in self._bills.values() if len(bill.left) < bill.written}
        for bill in bills.values():
            bill.written = len(bill.left)  # should that not be written, the row is only longer than it need be
        return [bill.row() for bill in bills.values()]
