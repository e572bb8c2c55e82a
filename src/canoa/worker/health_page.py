"""Whether a manager says that it is up: one look at its health page, over plain asyncio streams."""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from canoa.errors import SettingError
from canoa.settings import without_password

PATH: Final = "/actuator/health"
WITHIN_S: Final = 2.0
MAX_BYTES: Final = 64 * 1024

_IS_UP: Final = re.compile(rb'\AHTTP/1\.[01] 200 .*\r\n\r\n.*"status"\s*:\s*"UP"', re.DOTALL)
"""However the body is framed."""


class HealthPage(NamedTuple):
    host: str
    port: int
    path: str
    context: ssl.SSLContext | None

    async def is_up(self) -> bool:
        """False also where nobody answers in time."""
        try:
            async with asyncio.timeout(WITHIN_S):
                return _IS_UP.match(await self._fetched()) is not None
        except (OSError, TimeoutError):  # a wrong certificate is an OSError, too
            return False

    async def _fetched(self) -> bytes:
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.context, limit=MAX_BYTES)
        try:
            host = f"[{self.host}]" if ":" in self.host else self.host
            lines = (f"GET {self.path} HTTP/1.1", f"Host: {host}:{self.port}", "Connection: close", "", "")
            writer.write("\r\n".join(lines).encode())
            return await _read_all(reader)
        finally:
            writer.close()


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    """As much as a health page may say."""
    answer = b""
    while len(answer) < MAX_BYTES and (part := await reader.read(MAX_BYTES)):
        answer += part
    return answer


def health_page(manager_url: str) -> HealthPage:
    """Of a manager at this address. Raises `SettingError` where that is none."""
    try:
        parts = urlsplit(manager_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:  # of the port
        parts, port = urlsplit(""), 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not manager_url.isascii():
        raise SettingError(
            f"manager_url {without_password(manager_url)!r:.80} is no address; write http://manager.example:8420"
        )
    context = ssl.create_default_context() if parts.scheme == "https" else None
    return HealthPage(parts.hostname, port, parts.path.rstrip("/") + PATH, context)
