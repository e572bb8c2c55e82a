"""One question to the recorders, for everybody who asks over the broker.

Recorders offer the desk as actions (`canoa.task`, …: `recorder/system.py`), so a question is a call. It is bounded, and
what went wrong with the question is never mistaken for what went wrong with a task.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canoa import errors
from canoa.action import Options
from canoa.client.limit import NO_LIMIT, Limit, linked
from canoa.errors import (
    ActionFailed,
    CanoaError,
    DeliveryUnknown,
    ManagersGone,
    NobodyAnswers,
    NobodyKeeps,
    NobodyManages,
    QueueMissing,
    ResultNotReady,
    TaskEnded,
    TaskExpired,
    UnknownAction,
)
from canoa.vocabulary import ActionName
from canoa.wire.codec import ContentType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.app import Canoa

SYSTEM: Final = "canoa"
ANSWER_WITHIN_S: Final = 15.0
"""How long a question may wait for a recorder. Later, none of them takes it up."""

RUN_WITHIN_S: Final = 30.0
"""How long a recorder may work on its answer, apart from waiting for a task's end."""

GRACE_S: Final = 5.0
"""For an answer that is on its way."""

MAX_WAIT_S: Final = 20.0
"""How long one question may wait for a task's end. Asked anew, it notices a recorder that died."""

LOOK_EVERY_S: Final = 0.25
TOLD_AWAY_AFTER_S: Final = 1.0
TOLD_SILENT_AFTER_S: Final = 3.0
"""Later than of those that are away: one that is there is mostly just about to answer."""


def _unsaid(_: str) -> None:
    """Programs wait in silence."""


class Patience(NamedTuple):
    """With those who could answer: how long they may be away, which gives one time that is just started anew, or whose
    link was cut (`reconnect_max_s`); who hears what is waited for, once that takes a while; and how long all questions
    together may take."""

    there_within_s: float = 15.0
    say: Callable[[str], None] = _unsaid
    limit: Limit = NO_LIMIT


PATIENT: Final = Patience()


async def ask(
    app: Canoa,
    name: str,
    body: bytes,
    *,
    wait_s: float = 0,
    is_repeatable: bool = True,
    is_routed: bool = False,
    patience: Patience | None = None,
) -> Any:
    """The answer to `canoa.<name>`, asked with the arguments in `body`. `wait_s`: how long the recorder may wait for a
    task's end. `is_repeatable`: asking twice does no harm, so a broker that forgot the question gets it again.
    `is_routed`: only managers answer it.

    Raises what the desk raised; before anything is sent `NobodyKeeps` or `NobodyManages`, or `NobodyAnswers` or
    `ManagersGone` where nobody is there now; `NobodyAnswers` also when nobody did in time; `DeliveryUnknown` when one
    took it up and did not finish.
    """
    [answer] = await ask_each(
        app, name, [body], wait_s=wait_s, is_repeatable=is_repeatable, is_routed=is_routed, patience=patience
    )
    return answer


async def ask_each(
    app: Canoa,
    name: str,
    bodies: Sequence[bytes],
    *,
    wait_s: float = 0,
    is_repeatable: bool = True,
    is_routed: bool = False,
    patience: Patience | None = None,
) -> list[Any]:
    """The same for many questions at once. Raises the first error, once all have ended."""
    patience, who = patience or PATIENT, _who(is_routed)
    await linked(app, patience.limit)
    async with patience.limit.kept(partial(_unanswered, who), f"no {who} answered", wait_s=wait_s):
        await _wait_there(app, name, patience, is_routed=is_routed)
        text = f"waiting for a {who}'s answer"
        telling = asyncio.get_running_loop().call_later(wait_s + TOLD_SILENT_AFTER_S, patience.say, text)
        asking = [
            _asked(app, name, body, wait_s=wait_s, is_repeatable=is_repeatable, is_routed=is_routed) for body in bodies
        ]
        try:
            answers = await asyncio.gather(*asking, return_exceptions=True)
        finally:
            telling.cancel()
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


async def _wait_there(app: Canoa, name: str, patience: Patience, *, is_routed: bool) -> None:
    """Before it is sent: what waits for somebody could be answered, and a task accepted, long after who asked was told
    that nobody is there."""
    loop, who = asyncio.get_running_loop(), _who(is_routed)
    began_s, is_told = loop.time(), False
    while not await _is_taken(app, name, is_routed=is_routed):
        away_s = loop.time() - began_s
        if away_s >= patience.there_within_s:
            text = f"no {who} answers: those that ran on this broker have gone; start one: canoa {who}"
            raise (ManagersGone if is_routed else NobodyAnswers)(text)
        if away_s >= TOLD_AWAY_AFTER_S and not is_told:
            is_told = True
            patience.say(f"no {who} is connected to the broker; waiting for one")
        await asyncio.sleep(LOOK_EVERY_S)


async def _is_taken(app: Canoa, name: str, *, is_routed: bool) -> bool:
    """Somebody takes such questions just now."""
    try:
        return (await app.depth(f"{SYSTEM}.{name}")).consumers > 0
    except QueueMissing as exc:
        raise _never_there(is_routed) from exc


def _who(is_routed: bool) -> str:
    return "manager" if is_routed else "recorder"


def _unanswered(who: str, text: str) -> NobodyAnswers:
    return NobodyAnswers(f"{text}; its log may say why, or start another: canoa {who}")


def _never_there(is_routed: bool) -> NobodyManages | NobodyKeeps:
    if is_routed:
        return NobodyManages("no manager ever ran on this broker; start one: canoa manager")
    return NobodyKeeps("nobody keeps tasks on this broker; start a recorder: canoa recorder")


async def _asked(app: Canoa, name: str, body: bytes, *, wait_s: float, is_repeatable: bool, is_routed: bool) -> Any:
    who = _who(is_routed)
    try:
        return await _answer(app, name, body, wait_s=wait_s, is_repeatable=is_repeatable)
    except UnknownAction as exc:
        raise _never_there(is_routed) from exc
    except (ResultNotReady, TaskExpired) as exc:
        raise _unanswered(who, f"no {who} answered within {ANSWER_WITHIN_S:g} s") from exc
    except ActionFailed as exc:
        raise _as_told(exc) from None
    except TaskEnded as exc:
        raise DeliveryUnknown(f"a {who} took up {SYSTEM}.{name} and did not finish it ({exc})") from exc


async def _answer(app: Canoa, name: str, body: bytes, *, wait_s: float, is_repeatable: bool) -> Any:
    session = await app.session()
    options = Options(queue_timeout=ANSWER_WITHIN_S, timeout=wait_s + RUN_WITHIN_S, is_awaited=is_repeatable)
    handle = await session.submit_raw(ActionName(f"{SYSTEM}.{name}"), body, ContentType.JSON.value, options)
    try:
        return await handle.result(ANSWER_WITHIN_S + wait_s + GRACE_S)
    finally:
        if not handle.is_done:
            session.replies.drop_unseen([handle])


def _as_told(failed: ActionFailed) -> CanoaError:
    """What the desk raised there is raised here. Anything else is a recorder's own failure, and says so."""
    told = errors.named(failed.error_type, str(failed).removeprefix(f"{failed.error_type}: "))
    return told or CanoaError(f"a recorder failed to answer ({failed}); its log says more")
