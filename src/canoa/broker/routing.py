"""Which queues a message reaches: the four exchange kinds, bindings and alternate exchanges.

Pure: names in, names out. Matching follows RabbitMQ to the letter, including its odd corners (an empty routing key has
no words at all; header names that start with `x-` are ignored). What happens inside a queue is in `memory_queue.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.broker.port import Binding, Exchange, ExchangeKind, HeaderValue, Relay
from canoa.errors import BrokerRefusedOperation, DeclarationDiffers

if TYPE_CHECKING:
    from collections.abc import Mapping

Queues = tuple[str, ...]

PREDEFINED = tuple(Exchange(name=f"amq.{kind}", kind=kind) for kind in ExchangeKind)

CACHED_KEYS = 4096
"""Remembered routes per exchange. Reply keys are endless, so it is bounded; a full cache starts again from empty."""


def topic_matches(pattern: str, key: str) -> bool:
    """`*` stands for exactly one word, `#` for any number of them, none included."""
    wanted, words = _words(pattern), _words(key)
    at = position = 0
    retry_at, retry_position = -1, 0
    while position < len(words):
        if at < len(wanted) and wanted[at] == "#":
            # Let it stand for nothing first; on a dead end, come back here and let it take one word more.
            retry_at, retry_position = at + 1, position
            at += 1
        elif at < len(wanted) and wanted[at] in ("*", words[position]):
            at += 1
            position += 1
        elif retry_at >= 0:
            retry_position += 1
            at, position = retry_at, retry_position
        else:
            return False
    return all(word == "#" for word in wanted[at:])


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def headers_match(wanted: Mapping[str, HeaderValue], headers: Mapping[str, HeaderValue], *, match_any: bool) -> bool:
    """All of the wanted headers are there (trivially so when none is wanted), or any one of them.

    A wanted None asks for the header's presence, whatever its value.
    """
    hits = (
        name in headers and (value is None or _comparable(value) == _comparable(headers[name]))
        for name, value in wanted.items()
        if not name.startswith("x-")
    )
    return any(hits) if match_any else all(hits)


def _comparable(value: HeaderValue, *, nested: bool = False) -> object:
    """A form in which Python's `==` says what RabbitMQ says.

    A boolean is no number; text and bytes, or an integer and a float, are the same at the top and differ in depth.
    """
    match value:
        case bool():
            return ("bool", value)
        case list():
            return [_comparable(item, nested=True) for item in value]
        case dict():
            return {name: _comparable(item, nested=True) for name, item in value.items()}
        case _ if nested:
            return (type(value), value)
        case str():
            return value.encode()
        case _:
            return value


class _Bindings:
    """One exchange, the queues bound to it, and the exchanges it relays to."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.relays: dict[tuple[str, str], Relay] = {}
        self._bindings: dict[object, Binding] = {}
        self._cache: dict[str, Queues] = {}

    def add(self, binding: Binding) -> None:
        headers = repr(sorted(binding.headers.items()))
        self._bindings[binding.queue, binding.key, binding.match_any, headers] = binding
        self._cache.clear()

    def remove_queue(self, queue: str) -> None:
        self._bindings = {key: binding for key, binding in self._bindings.items() if binding.queue != queue}
        self._cache.clear()

    def route(self, key: str, headers: Mapping[str, HeaderValue]) -> Queues:
        if self.exchange.kind is ExchangeKind.HEADERS:
            return self._matching(key, headers)
        queues = self._cache.get(key)
        if queues is None:
            if len(self._cache) >= CACHED_KEYS:
                self._cache.clear()
            queues = self._cache[key] = self._matching(key, headers)
        return queues

    def relayed_to(self, key: str, headers: Mapping[str, HeaderValue]) -> list[str]:
        """The exchanges that a message goes on to."""
        as_binding = (Binding(exchange=each.exchange, queue=each.to, key=each.key) for each in self.relays.values())
        return [binding.queue for binding in as_binding if self._matches(binding, key, headers)]

    def _matching(self, key: str, headers: Mapping[str, HeaderValue]) -> Queues:
        """Each queue once, however many of its bindings match, in the order of binding."""
        return tuple(dict.fromkeys(b.queue for b in self._bindings.values() if self._matches(b, key, headers)))

    def _matches(self, binding: Binding, key: str, headers: Mapping[str, HeaderValue]) -> bool:
        match self.exchange.kind:
            case ExchangeKind.DIRECT:
                return binding.key == key
            case ExchangeKind.FANOUT:
                return True
            case ExchangeKind.TOPIC:
                return topic_matches(binding.key, key)
            case ExchangeKind.HEADERS:
                return headers_match(binding.headers, headers, match_any=binding.match_any)


class Router:
    """All exchanges but the default one, which has no bindings: there, the key is the queue's name."""

    def __init__(self) -> None:
        self._exchanges = {exchange.name: _Bindings(exchange) for exchange in PREDEFINED}
        self._bound: dict[str, set[str]] = {}  # queue to exchanges, so that deleting one need not look at all

    def declare(self, exchange: Exchange) -> None:
        known = self._exchanges.get(exchange.name)
        if known is None:
            if not exchange.name or exchange.name.startswith("amq."):
                raise BrokerRefusedOperation(f"exchange name {exchange.name!r} is reserved for the broker")
            self._exchanges[exchange.name] = _Bindings(exchange)
        elif known.exchange != exchange:
            raise DeclarationDiffers(
                f"exchange {exchange.name!r} exists with other traits: {known.exchange}, not {exchange}"
            )

    def bind(self, binding: Binding) -> None:
        if not binding.exchange:
            raise BrokerRefusedOperation("nothing can be bound to the default exchange: its keys are queue names")
        bindings = self._exchanges.get(binding.exchange)
        if bindings is None:
            raise BrokerRefusedOperation(f"exchange {binding.exchange!r} does not exist; declare it before binding")
        bindings.add(binding)
        self._bound.setdefault(binding.queue, set()).add(binding.exchange)

    def relay(self, relay: Relay) -> None:
        for name in (relay.exchange, relay.to):
            if not name or name not in self._exchanges:
                raise BrokerRefusedOperation(f"exchange {name!r} does not exist; declare it before binding")
        self._exchanges[relay.exchange].relays[relay.to, relay.key] = relay

    def remove_queue(self, queue: str) -> None:
        for exchange in self._bound.pop(queue, ()):
            self._exchanges[exchange].remove_queue(queue)

    def route(self, exchange: str, key: str, headers: Mapping[str, HeaderValue]) -> Queues | None:
        """The queues reached, by alternate exchanges where the first finds none. None: there is no such exchange."""
        bindings = self._exchanges.get(exchange)
        if bindings is None:
            return None
        queues = bindings.route(key, headers)
        if bindings.relays and (onwards := bindings.relayed_to(key, headers)):
            return self._route_onwards(queues, onwards, key, headers)
        if queues or bindings.exchange.alternate is None:
            return queues
        return self._route_alternate(bindings, key, headers)

    def _route_onwards(
        self, queues: Queues, onwards: list[str], key: str, headers: Mapping[str, HeaderValue]
    ) -> Queues:
        reached = dict.fromkeys(queues)
        seen: set[str] = set()  # relays may form a circle
        while onwards:
            if (name := onwards.pop()) not in seen:
                seen.add(name)
                bindings = self._exchanges[name]
                reached |= dict.fromkeys(bindings.route(key, headers))
                onwards += bindings.relayed_to(key, headers)
        return tuple(reached)

    def _route_alternate(self, bindings: _Bindings, key: str, headers: Mapping[str, HeaderValue]) -> Queues:
        tried: set[str] = set()
        while (alternate := bindings.exchange.alternate) is not None and alternate not in tried:
            tried.add(alternate)  # alternates may form a circle
            found = self._exchanges.get(alternate)
            if found is None:
                break
            if queues := found.route(key, headers):
                return queues
            bindings = found
        return ()
