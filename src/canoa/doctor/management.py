"""RabbitMQ's management API, where it answers: version, plugins, alarms, the user's rights, and its clock.

It is asked with the broker's own user, and only where that user's password is as safe as on the way to the broker.
"""

from __future__ import annotations

import asyncio
import base64
import email.utils
import json
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from canoa.broker.amqp.tls import new_context
from canoa.doctor.rights import Rights

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from canoa.broker.amqp.engine import Login
    from canoa.broker.amqp.link import Address

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
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "reason", None) or exc
        return Silence(url, str(getattr(reason, "strerror", None) or reason))


def _ask(url: str, login: Login, context: ssl.SSLContext | None) -> Overview:
    def get(path: str) -> tuple[Any, float | None]:
        return _get(f"{url}/api/{path}", login, context)

    _, ahead_s = get("whoami")
    vhost, user = quote(login.vhost, safe=""), quote(login.user, safe="")
    nodes = _unless_refused(get, "nodes")
    granted = _unless_refused(get, f"permissions/{vhost}/{user}")
    return Overview(
        url=url,
        plugins=sorted({plugin for node in nodes or () for plugin in node.get("enabled_plugins", ())}),
        alarms=alarms_of(_unless_refused(get, "health/checks/alarms") or {}),
        rights=granted_rights(granted) if granted else None,
        ahead_s=ahead_s,
    )


def _unless_refused(get: Callable[[str], tuple[Any, float | None]], path: str) -> Any:
    """None where the user lacks the tag for it. A check that fails says why."""
    try:
        return get(path)[0]
    except urllib.error.HTTPError as exc:
        with exc:
            return json.loads(exc.read(MAX_BYTES)) if exc.code == HTTPStatus.SERVICE_UNAVAILABLE else None


def _get(url: str, login: Login, context: ssl.SSLContext | None) -> tuple[Any, float | None]:
    secret = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {secret}"})
    began_s = time.time()
    with _opener(context).open(request, timeout=WITHIN_S) as answer:
        ended_s = time.time()
        body = json.loads(answer.read(MAX_BYTES))
        return body, ahead_s(answer.headers.get("Date"), began_s, ended_s)


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


def alarms_of(answer: dict[str, Any]) -> list[str]:
    return [f"{alarm.get('resource')} of {alarm.get('node')}" for alarm in answer.get("alarms", ())]


def granted_rights(answer: dict[str, Any]) -> Rights:
    return Rights(**{right: (str(answer.get(right, "")),) for right in Rights.__struct_fields__})
