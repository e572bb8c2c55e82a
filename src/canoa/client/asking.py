"""One question to the recorders, for everybody who asks over the broker.

Recorders offer the desk as actions (`canoa.task`, …: `recorder/system.py`), so a question is a call. It is bounded, and
what went wrong with the question is never mistaken for what went wrong with a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from canoa import errors
from canoa.action import Options
from canoa.errors import (
    ActionFailed,
    CanoaError,
    DeliveryUnknown,
    NobodyAnswers,
    NobodyKeeps,
    NobodyManages,
    ResultNotReady,
    TaskEnded,
    TaskExpired,
    UnknownAction,
)
from canoa.vocabulary import ActionName
from canoa.wire.codec import ContentType

if TYPE_CHECKING:
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


async def ask(
    app: Canoa, name: str, body: bytes, *, wait_s: float = 0, is_repeatable: bool = True, is_routed: bool = False
) -> Any:
    """The answer to `canoa.<name>`, asked with the arguments in `body`. `wait_s`: how long the recorder may wait for a
    task's end. `is_repeatable`: asking twice does no harm, so a broker that forgot the question gets it again.
    `is_routed`: only managers answer it.

    Raises what the desk raised; `NobodyKeeps` or `NobodyManages`, or `NobodyAnswers` when none did in time;
    `DeliveryUnknown` when one took it up and did not finish.
    """
    who = "manager" if is_routed else "recorder"
    try:
        return await _answer(app, name, body, wait_s=wait_s, is_repeatable=is_repeatable)
    except UnknownAction as exc:
        if is_routed:
            raise NobodyManages("no manager ever ran on this broker; start one: canoa manager") from exc
        raise NobodyKeeps("nobody keeps tasks on this broker; start a recorder: canoa recorder") from exc
    except (ResultNotReady, TaskExpired) as exc:
        text = f"no {who} answered within {ANSWER_WITHIN_S:g} s; start one: canoa {who}"
        raise NobodyAnswers(text) from exc
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
