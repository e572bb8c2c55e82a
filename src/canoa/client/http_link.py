"""One HTTP connection to the API that is kept open: requests in, bodies out, failures as Canoa's own errors."""

from __future__ import annotations

import http.client
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from canoa import errors
from canoa.client.limit import NO_LIMIT, Limit
from canoa.errors import ApiUnreachable, CanoaError, DeliveryUnknown, SettingError, WrongUse
from canoa.settings import without_password

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX: Final = "/api/v1"
TIMEOUT_S: Final = 30.0
"""How long the API may take for an answer that waits for nothing."""

SILENT_S: Final = 60.0
"""A stream says that it is still there every 15 s: four times that is a dead link."""

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
MAX_LINE_BYTES: Final = 1024 * 1024
_PORTS: Final = {"http": 80, "https": 443}


class _Told(msgspec.Struct):
    type: str
    message: str


class _Refusal(msgspec.Struct):
    error: _Told


class HttpLink:
    """`limit`: of all that is asked."""

    def __init__(self, url: str, token: str, limit: Limit = NO_LIMIT) -> None:
        self._limit = limit
        self._scheme, self._host, self._port, self._root = _parsed(url)
        self.url = f"{self._scheme}://{self._host}:{self._port}{self._root}"
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, query: Mapping[str, Any] | None = None, *, wait_s: float = 0) -> bytes:
        """Asked once more where a connection that was kept open turns out to be closed: asking changes nothing."""
        target = _with_query(path, query or {})
        was_open = self._connection is not None
        try:
            return self._exchange("GET", target, None, wait_s)
        except DeliveryUnknown:
            if not was_open:
                raise
            return self._exchange("GET", target, None, wait_s)

    def post(self, path: str, body: Any) -> bytes:
        return self._exchange("POST", path, msgspec.json.encode(body), 0)

    def put(self, path: str, body: Any) -> bytes:
        return self._exchange("PUT", path, msgspec.json.encode(body), 0)

    def lines(self, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """Of an answer that goes on, over a connection of its own, until the API ends it or the caller leaves."""
        connection = self._connected(SILENT_S)
        try:
            headers = {**self._headers, "Accept": "text/event-stream"}
            connection.request("GET", self._root + PREFIX + _with_query(path, query), headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                raise self._refused(response.status, response.read(MAX_LINE_BYTES))
            while line := response.readline(MAX_LINE_BYTES):
                yield line.rstrip(b"\r\n")
        except (OSError, http.client.HTTPException) as exc:
            raise ApiUnreachable(f"the link to the API at {self.url} broke: {_cause(exc)}") from exc
        finally:
            connection.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()

    def _exchange(self, method: str, target: str, body: bytes | None, wait_s: float) -> bytes:
        """Raises `ApiUnreachable` when nothing was sent, `DeliveryUnknown` when the answer did not come."""
        connection = self._connection or self._connected(self._limit.left_s(TIMEOUT_S))
        self._connection = connection
        if connection.sock is not None:
            connection.sock.settimeout(self._limit.left_s(TIMEOUT_S + wait_s, wait_s=wait_s))
        try:
            headers = {**self._headers, "Content-Type": "application/json"}
            connection.request(method, self._root + PREFIX + target, body, headers)
            response = connection.getresponse()
            answer = response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as exc:
            self.close()
            raise DeliveryUnknown(f"no answer from the API at {self.url}: {_cause(exc)}") from exc
        except BaseException:
            self.close()  # an answer that is half read would be taken for the next one's
            raise
        if response.status >= 400:
            raise self._refused(response.status, answer)
        return answer

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.connect()
        except OSError as exc:
            raise ApiUnreachable(
                f"nobody answers at the API's address {self.url} ({_cause(exc)}); is `canoa up` running?"
            ) from exc
        return connection

    def _refused(self, status: int, body: bytes) -> CanoaError:
        if status == 401:
            return SettingError(
                f"the API at {self.url} does not take our token; "
                f"run the command in the folder of `canoa up`, or set CANOA_API_TOKEN"
            )
        try:
            told = msgspec.json.decode(body, type=_Refusal).error
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return CanoaError(f"{self.url} answered with status {status} and no words of Canoa's; is it the API?")
        return errors.named(told.type, told.message) or (WrongUse if status < 500 else CanoaError)(told.message)


def _parsed(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme], parts.path.rstrip("/")
    except ValueError:  # of the port
        pass
    raise SettingError(f"api {without_password(url)!r:.80} is no address; write http://127.0.0.1:8420")


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _cause(exc: Exception) -> str:
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or type(exc).__name__
