"""RabbitMQ's management API, where it answers: version, plugins, alarms, the user's rights, and its clock.

It is asked with the broker's own user, and only where that user's password is as safe as on the way to the broker.
"""

from __future__ import annotations

import asyncio
import base64
import email.utils
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from canoa.broker.amqp.tls import new_context
from canoa.doctor.rights import Rights

if TYPE_CHECKING:
    import ssl

    from canoa.broker.amqp.engine import Login
    from canoa.broker.amqp.link import Address

T = TypeVar("T")

WITHIN_S: Final = 3.0
MAX_BYTES: Final = 4 << 20


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Empty or None: it did not say, since the user lacks the tag for it, or it has only just started."""

    url: str
    plugins: list[str] = []
    alarms: list[str] = []
    rights: Rights | None = None
    ahead_s: float | None = None  # our clock's lead over the broker's


class Silence(msgspec.Struct, frozen=True):
    """Nobody answers, or not to us."""

    url: str
    reason: str


def default_url(address: Address) -> str:
    """Where RabbitMQ has it by default: under TLS when the broker is."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"https://{host}:15671" if address.tls else f"http://{host}:15672"


async def ask(url: str, address: Address, login: Login) -> Overview | Silence:
    """Raises nothing: an API that is not there is no fault."""
    if login.is_external:
        return Silence(url, "the certificate is our login, and it takes a password")
    context = new_context(address.tls) if address.tls and url.startswith("https:") else None
    try:
        return await asyncio.to_thread(_ask, url.rstrip("/"), login, context)
    except (OSError, HTTPException, msgspec.MsgspecError) as exc:
        reason = getattr(exc, "reason", None) or exc
        return Silence(url, str(getattr(reason, "strerror", None) or reason))


def _ask(url: str, login: Login, context: ssl.SSLContext | None) -> Overview:
    api = _Api(url, login, context)
    api.get("whoami", Any)
    vhost, user = quote(login.vhost, safe=""), quote(login.user, safe="")
    nodes = api.get_if_allowed("nodes", list[_Node]) or []
    alarms = api.get_if_allowed("health/checks/alarms", _Health)
    granted = api.get_if_allowed(f"permissions/{vhost}/{user}", _Permissions)
    return Overview(
        url=url,
        plugins=sorted({plugin for node in nodes for plugin in node.enabled_plugins}),
        alarms=[f"{alarm.resource} of {alarm.node}" for alarm in alarms.alarms] if alarms else [],
        rights=granted.rights() if granted else None,
        ahead_s=api.ahead_s,
    )


class _Node(msgspec.Struct):
    enabled_plugins: list[str] = []


class _Alarm(msgspec.Struct):
    node: str
    resource: str


class _Health(msgspec.Struct):
    alarms: list[_Alarm] = []


class _Permissions(msgspec.Struct):
    configure: str
    write: str
    read: str

    def rights(self) -> Rights:
        return Rights(configure=(self.configure,), write=(self.write,), read=(self.read,))


class _Api:
    """Blocks. `ahead_s`: our clock's lead, by the last answer."""

    def __init__(self, url: str, login: Login, context: ssl.SSLContext | None) -> None:
        secret = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
        self._url = url
        self._headers = {"Authorization": f"Basic {secret}"}
        self._opener = _opener(context)
        self.ahead_s: float | None = None

    def get(self, path: str, type_: type[T] | Any) -> T:
        request = urllib.request.Request(f"{self._url}/api/{path}", headers=self._headers)
        began_s = time.time()
        with self._opener.open(request, timeout=WITHIN_S) as answer:
            self.ahead_s = ahead_s(answer.headers.get("Date"), began_s, time.time())
            decoded: T = msgspec.json.decode(answer.read(MAX_BYTES), type=type_)
            return decoded

    def get_if_allowed(self, path: str, type_: type[T]) -> T | None:
        """None where the user lacks the tag for it. A health check that fails answers with an error, and says why."""
        try:
            return self.get(path, type_)
        except urllib.error.HTTPError as exc:
            with exc:
                is_answer = exc.code == HTTPStatus.SERVICE_UNAVAILABLE
                return msgspec.json.decode(exc.read(MAX_BYTES), type=type_) if is_answer else None


def _opener(context: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Straight there and nowhere else: no proxy, no redirection, since the request carries a password."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _StayHere()]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


class _StayHere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def is_http(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def ahead_s(date: str | None, began_s: float, ended_s: float) -> float | None:
    """How far our clock is ahead of the answer's. The header cuts off the fraction, half a second on average."""
    try:
        theirs = email.utils.parsedate_to_datetime(date or "").timestamp() + 0.5
    except ValueError:
        return None
    return (began_s + ended_s) / 2 - theirs
