"""The HTTP API as a door: every question is a request, every refusal one of Canoa's errors.

Blocking, on the standard library alone. `with Remote("http://127.0.0.1:8420", token) as remote:`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from canoa.broker.port import Depth
from canoa.client.http_link import HttpLink
from canoa.client.limit import NO_LIMIT, Limit
from canoa.errors import CanoaError
from canoa.recorder.routed_views import ExplainView, NodeView, OutputView, PlanView, Registered, StoryView
from canoa.recorder.token_views import MadeToken, TokenView
from canoa.recorder.views import (
    ActionView,
    Event,
    LetterPage,
    LetterView,
    Redriven,
    ResultView,
    Submitted,
    TaskPage,
    TaskView,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canoa.client.door import Door, Order, RoutedOrder
    from canoa.client.token_door import TokenDoor
    from canoa.vocabulary import Role

T = TypeVar("T")

BATCH: Final = 500
BATCH_BYTES: Final = 512 * 1024
"""The API takes bodies of its payload limit (1 MiB, unless set) and 1,000 tasks at once."""


class Remote:
    max_wait_s: float = 30.0

    def __init__(self, url: str, token: str, limit: Limit = NO_LIMIT) -> None:
        self._link = HttpLink(url, token, limit)
        self.url = self._link.url

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._link.close()

    # --- Submitting -----------------------------------------------------------------------------------

    def submit(self, orders: Sequence[Order]) -> list[Submitted]:
        if len(orders) == 1:
            return [_read(self._link.post("/tasks", orders[0]), Submitted)]
        done: list[Submitted] = []
        for batch in _batches(orders):
            done += _read(self._link.post("/tasks/batch", {"requests": batch}), list[Submitted])
        return done

    # --- One task -------------------------------------------------------------------------------------

    def task(self, task_id: str) -> TaskView:
        return _read(self._link.get(f"/tasks/{_part(task_id)}"), TaskView)

    def result(self, task_id: str, *, wait_s: float = 0) -> ResultView:
        wait_s = min(wait_s, self.max_wait_s)
        answer = self._link.get(f"/tasks/{_part(task_id)}/result", {"wait": f"{wait_s:g}"}, wait_s=wait_s)
        return _read(answer, ResultView)

    def cancel(self, task_id: str) -> TaskView:
        return _read(self._link.post(f"/tasks/{_part(task_id)}/cancel", {}), TaskView)

    # --- What managers answer -------------------------------------------------------------------------

    def route(self, order: RoutedOrder) -> Submitted:
        return _read(self._link.post("/tasks", _routed_body(order)), Submitted)

    def story(self, task_id: str) -> StoryView:
        return _read(self._link.get(f"/tasks/{_part(task_id)}/steps"), StoryView)

    def output(self, task_id: str, step: str) -> OutputView:
        return _read(self._link.get(f"/tasks/{_part(task_id)}/steps/{_part(step)}"), OutputView)

    def rerun(self, task_id: str) -> TaskView:
        return _read(self._link.post(f"/tasks/{_part(task_id)}/rerun", {}), TaskView)

    def plans(self) -> list[PlanView]:
        return _read(self._link.get("/plans"), list[PlanView])

    def plan(self, name: str) -> PlanView:
        return _read(self._link.get(f"/plans/{_part(name)}"), PlanView)

    def register(self, name: str, document: dict[str, Any]) -> Registered:
        return _read(self._link.put(f"/plans/{_part(name)}", document), Registered)

    def nodes(self) -> list[NodeView]:
        return _read(self._link.get("/nodes"), list[NodeView])

    def node(self, node_id: str) -> NodeView:
        return _read(self._link.get(f"/nodes/{_part(node_id)}"), NodeView)

    def explain(self, action: str, *, size_bytes: int = 0, site: str = "") -> ExplainView:
        asked = {"size_bytes": str(size_bytes)} | ({"site": site} if site else {})  # a manager of before knows of none
        return _read(self._link.get(f"/catalogue/{_part(action)}/explanation", asked), ExplainView)

    def explain_step(self, plan: str, step: str, *, size_bytes: int = 0, site: str = "") -> ExplainView:
        asked = {"size_bytes": str(size_bytes), "site": site}
        return _read(self._link.get(f"/plans/{_part(plan)}/steps/{_part(step)}/explanation", asked), ExplainView)

    # --- Tokens ---------------------------------------------------------------------------------------

    def create_token(self, name: str, role: Role, *, expires_s: float | None = None) -> MadeToken:
        return _read(self._link.post("/tokens", {"name": name, "role": role, "expires_s": expires_s}), MadeToken)

    def tokens(self) -> list[TokenView]:
        return _read(self._link.get("/tokens"), list[TokenView])

    def revoke_token(self, name: str) -> TokenView:
        return _read(self._link.post(f"/tokens/{_part(name)}/revoke", {}), TokenView)

    # --- Many -----------------------------------------------------------------------------------------

    def tasks(
        self,
        *,
        action: str | None = None,
        state: str | None = None,
        outcome: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage:
        query = {"action": action, "state": state, "outcome": outcome, "limit": limit, "cursor": cursor}
        return _read(self._link.get("/tasks", query), TaskPage)

    def dead(self, *, action: str | None = None, limit: int = 50, cursor: str | None = None) -> LetterPage:
        return _read(self._link.get("/dead", {"action": action, "limit": limit, "cursor": cursor}), LetterPage)

    def letter(self, task_id: str) -> LetterView:
        return _read(self._link.get(f"/dead/{_part(task_id)}"), LetterView)

    def redrive(self, task_ids: Sequence[str]) -> Redriven:
        redriven: list[str] = []
        skipped: list[str] = []
        for start in range(0, len(task_ids), BATCH):
            body = {"ids": list(task_ids[start : start + BATCH])}
            done = _read(self._link.post("/dead/redrive", body), Redriven)
            redriven += done.redriven
            skipped += done.skipped
        return Redriven(redriven=redriven, skipped=skipped)

    def redrive_all(self, *, action: str | None = None) -> Redriven:
        return _read(self._link.post("/dead/redrive", {} if action is None else {"action": action}), Redriven)

    def actions(self) -> list[ActionView]:
        return _read(self._link.get("/actions"), list[ActionView])

    def depth(self, action: str) -> Depth | None:
        for each in self.actions():
            if each.action == action and each.waiting is not None and each.workers is not None:
                return Depth(messages=each.waiting, consumers=each.workers)
        return None

    # --- Looking on -----------------------------------------------------------------------------------

    def events(
        self, *, task_id: str | None = None, action: str | None = None, node_id: str | None = None
    ) -> Iterator[Event]:
        """What happens from now on, until the API stops or the loop is left. Nothing is promised about gaps."""
        data: list[bytes] = []
        for line in self._link.lines("/events", {"task": task_id, "action": action, "node": node_id}):
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield _read(b"\n".join(data), Event)
                data = []


def _routed_body(order: RoutedOrder) -> dict[str, Any]:
    if order.plan is not None:
        return {"plan": order.plan, "input": order.input, "options": order.options}
    return {"action": order.action, "arguments": order.input, "dispatch": "routed", "options": order.options}


def _batches(orders: Sequence[Order]) -> Iterator[list[Order]]:
    batch: list[Order] = []
    size_bytes = 0
    for order in orders:
        own_bytes = len(bytes(order.arguments)) + 500
        if batch and (len(batch) == BATCH or size_bytes + own_bytes > BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(order)
        size_bytes += own_bytes
    if batch:
        yield batch


def _part(task_id: str) -> str:
    return quote(task_id, safe="")


def _read(body: bytes, type_: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise CanoaError(f"the API answered with something else than a {type_}: {exc}") from exc


def _port(remote: Remote) -> Door:
    return remote


def _token_port(remote: Remote) -> TokenDoor:
    return remote
