"""Which way a command asks: over the broker where one is named, otherwise over the API of `canoa up`.

`canoa up` leaves its address and its token in `.canoa` of its folder, so that commands there need neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa import settings as settings_module
from canoa.cli import output
from canoa.cli.folder import ADDRESS, TOKEN, is_held
from canoa.client.limit import NO_LIMIT
from canoa.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from canoa.client.calls import Calls
    from canoa.client.door import Door
    from canoa.client.limit import Limit
    from canoa.client.remote import Remote
    from canoa.client.token_door import TokenDoor

THERE_WITHIN_S: Final = 5.0
"""How long a command waits for somebody who could answer: its user is told meanwhile, and can ask again."""


def open_door(broker: str | None, *, limit: Limit = NO_LIMIT, is_hurried: bool = False) -> Door:
    """For questions about kept tasks. Whoever opens it closes it. `limit`: of all that is asked. `is_hurried`: who
    could answer is not waited for."""
    found = settings_module.read({"broker": broker})
    if found.is_memory:
        return open_api(broker, limit=limit)
    from canoa.client.asking import Patience
    from canoa.client.questions import Questions

    return Questions(found.broker, Patience(0.0) if is_hurried else Patience(THERE_WITHIN_S, _said_once(), limit))


def _said_once() -> Callable[[str], None]:
    """On stderr. A command that follows a task asks again and again."""
    said: set[str] = set()

    def say(text: str) -> None:
        if text not in said:
            said.add(text)
            output.say(text)

    return say


def open_calls(broker: str | None, app: str, *, limit: Limit = NO_LIMIT) -> Calls:
    """For running actions and waiting for them: with a broker the quick way, which needs nothing but workers."""
    found = settings_module.read({"broker": broker})
    from canoa.client.calls import KeptCalls, ReplyCalls

    if found.is_memory:
        return KeptCalls(open_api(broker, limit=limit), limit)
    from canoa.app import Canoa

    return ReplyCalls(Canoa(app, broker=found.broker), limit)


def open_tokens(store: str | None) -> TokenDoor:
    """For tokens: in the store that is named, or over the API, or in the store of the settings. Never over the broker,
    where others may listen. Whoever opens it closes it."""
    from canoa.client.token_door import StoredTokens

    if store is not None:
        return StoredTokens(store)
    api = _known_api(None)
    if api is not None:
        return api
    known = settings_module.read({}).store
    if known:
        return StoredTokens(known)
    raise SettingError(
        "no `canoa up` runs in this folder, and no API is named; set CANOA_API and CANOA_API_TOKEN, or run this in the "
        "folder of `canoa up`, or name the store: --store URL"
    )


def open_api(broker: str | None, *, limit: Limit = NO_LIMIT) -> Remote:
    found = _known_api(broker, limit)
    if found is None:
        raise SettingError(
            "no broker is named, and no `canoa up` runs in this folder; start `canoa up module:app` here, "
            "or set CANOA_BROKER=amqp://user:password@host:5672/vhost (`canoa site start` gives you one), "
            "or CANOA_API and CANOA_API_TOKEN"
        )
    return found


def _known_api(broker: str | None, limit: Limit = NO_LIMIT) -> Remote | None:
    """What the settings name goes before what `canoa up` left here. None: there is neither."""
    from canoa.client.remote import Remote

    survey = settings_module.survey({"broker": broker}).sourced
    address, token = survey["api"], survey["api_token"].value
    written = _read(ADDRESS) if is_held() else ""
    if address.source == "default" and not written and not token:
        return None
    url = written if address.source == "default" and written else address.value
    return Remote(url, token or _read(TOKEN), limit)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingError(f"{path} cannot be read: {exc}; run the command as the user of `canoa up`") from exc
