"""Whatever answers where the management API should be: the doctor goes on, and no password goes astray."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from canoa.broker.amqp.engine import Login
from canoa.broker.amqp.link import Address
from canoa.broker.amqp.tls import Tls
from canoa.doctor.management import Overview, Silence, ask, default_url
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = Address(LOOPBACK, 5672)
LOGIN = Login("shop", "correct-horse", "/")


@contextmanager
def server(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """Its URL, and the paths it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            asked.append(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    listening = HTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{listening.server_port}", asked
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def answer(url: str) -> Overview | Silence:
    return asyncio.run(ask(url, PLAIN, LOGIN))


@pytest.mark.parametrize("body", [b"", b"<html>", b'"text"', b'{"a": 1}', b"[1]", b"\xff"])
def test_an_answer_in_another_form_is_taken_for_silence(body: bytes) -> None:
    with server(200, body) as (url, _):
        assert isinstance(answer(url), Silence)


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_refusal_is_silence_with_its_reason(status: int) -> None:
    with server(status, b"{}") as (url, _):
        said = answer(url)

    assert isinstance(said, Silence)
    assert said.reason


def test_a_redirection_is_not_followed() -> None:
    with server(200, b"{}") as (elsewhere, asked), server(302, b"", Location=elsewhere) as (url, _):
        assert isinstance(answer(url), Silence)

    assert asked == []


def test_what_is_no_web_server_is_silence() -> None:
    async def main() -> Overview | Silence:
        async def on_link(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"AMQP\x00\x00\x09\x01")
            writer.close()

        listening = await asyncio.start_server(on_link, LOOPBACK, 0)
        async with listening:
            port = listening.sockets[0].getsockname()[1]
            return await ask(f"http://{LOOPBACK}:{port}", PLAIN, LOGIN)

    assert isinstance(asyncio.run(main()), Silence)


def test_it_is_looked_for_where_the_password_is_as_safe_as_on_the_way_to_the_broker() -> None:
    assert default_url(Address("host", 5672)) == "http://host:15672"
    assert default_url(Address("::1", 5671, Tls())) == "https://[::1]:15671"


def test_who_logs_in_by_certificate_has_no_password_to_show() -> None:
    said = asyncio.run(ask("http://host", PLAIN, Login("", "", "/", is_external=True)))

    assert isinstance(said, Silence)
