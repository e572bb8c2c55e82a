"""The engine with everything it says and hears written down, for tests without a socket."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, TypeAlias

from canoa.broker.amqp import methods
from canoa.broker.amqp.engine import Channel, Connection, Login
from canoa.broker.amqp.methods import Method, encode

Answer: TypeAlias = "Future[Any]"
"""A waiter that needs no event loop."""


class Client:
    """`events` holds every callback in order: what happened, on which channel, and the arguments."""

    def __init__(self, *, vhost: str = "/", heartbeat_s: int = 10, is_external: bool = False) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.wakes: list[bool] = []  # each time whether it was urgent
        login = Login("guest", "guest", vhost, is_external)
        properties = {"product": "Canoa", "connection_name": "tests"}
        self.connection = Connection(login, heartbeat_s=heartbeat_s, properties=properties, wake=self._wake)
        self.connection.on_open = lambda: self.events.append(("open", 0))
        self.connection.on_blocked = lambda reason: self.events.append(("blocked", 0, reason))
        self.connection.on_closed = lambda error: self.events.append(("closed", 0, type(error), str(error)))

    def _wake(self, is_urgent: bool) -> None:
        self.wakes.append(is_urgent)

    def hears(self, number: int, method: Method, *arguments: Any) -> None:
        self.connection.receive(encode(number, method, *arguments))

    def says(self) -> bytes:
        return self.connection.take_outgoing()

    def shake_hands(self, *, frame_max: int = 131072, channel_max: int = 2047) -> None:
        self.connection.start()
        self.hears(0, methods.CONNECTION_START, 0, 9, {}, b"PLAIN", b"en_US")
        self.hears(0, methods.CONNECTION_TUNE, channel_max, frame_max, 60)
        self.hears(0, methods.CONNECTION_OPEN_OK, "")
        self.says()

    def ask_for_channel(self) -> tuple[Channel, Answer]:
        """A channel that the broker has not opened yet."""
        answer: Answer = Future()
        channel = self.connection.open_channel(answer)
        self._listen_to(channel)
        return channel, answer

    def open_channel(self) -> Channel:
        channel, _ = self.ask_for_channel()
        self.hears(channel.number, methods.CHANNEL_OPEN_OK, b"")
        self.says()
        return channel

    def _listen_to(self, channel: Channel) -> None:
        def listener(what: str) -> Any:
            return lambda *arguments: self.events.append((what, channel.number, *arguments))

        channel.on_deliver = listener("deliver")
        channel.on_return = listener("return")
        channel.on_confirm = listener("confirm")
        channel.on_cancelled = listener("cancelled")
        channel.on_closed = lambda error: self.events.append(("closed", channel.number, type(error), str(error)))


def opened(**tuning: int) -> Client:
    """A client that has shaken hands, and has forgotten about it."""
    client = Client()
    client.shake_hands(**tuning)
    client.events.clear()
    return client


def ask(channel: Channel, answer: Method, method: Method, *arguments: Any) -> Answer:
    waiter: Answer = Future()
    channel.request(waiter, answer, method, *arguments)
    return waiter
