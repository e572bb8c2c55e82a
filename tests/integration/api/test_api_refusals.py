"""What cannot be used is refused by the class of the error, in one shape, and never with a 500."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.api.world import TOKEN

from canoa import errors
from canoa.api import asked
from canoa.api.errors import STATUS, status_of

if TYPE_CHECKING:
    import httpx
    from tests.integration.api.paper_desk import PaperDesk

TASKS = "/api/v1/tasks"
RESIZE = '{"action": "shop.resize", "arguments": %s}'
OPTION = '{"action": "shop.resize", "options": {%s}}'


def refused(answer: httpx.Response) -> tuple[int, str]:
    assert list(answer.json()) == ["error"]
    assert set(answer.json()["error"]) == {"type", "message"}
    return answer.status_code, answer.json()["error"]["type"]


# --- Bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400),
        ("{", 400),
        ("nonsense", 400),
        ("\x00", 400),
        (RESIZE % '{"path": NaN}', 400),
        (RESIZE % '{"path": Infinity}', 400),
        (RESIZE % ('[' * 100_000 + ']' * 100_000), 413),
        (RESIZE % ('{"a":' + '[' * 1000 + ']' * 1000 + '}'), 400),
        (RESIZE % '{"path": "\\ud800"}', 400),
        (RESIZE % '{"path": 1e999}', 422),
        (RESIZE % '["a.png"]', 422),
        ("null", 422),
        ("[]", 422),
        ("{}", 422),
        ('{"action": 7}', 422),
        ('{"action": null}', 422),
        ('{"action": "resize"}', 422),
        ('{"action": "shop.resize", "argumets": {}}', 422),
        (OPTION % '"timeout": -1', 422),
        (OPTION % '"timeout": "5"', 422),
        (OPTION % '"retry": 1.5', 422),
        (OPTION % '"retry": true', 422),
        (OPTION % '"tiemout": 5', 422),
        (OPTION % '"idempotency_key": ""', 422),
        (OPTION % '"idempotency_key": "a\\u0000b"', 422),
        (OPTION % '"at": "tomorrow"', 422),
        (OPTION % '"at": "2030-01-01T00:00:00"', 422),
        (OPTION % '"after": -0.1', 422),
        (OPTION % '"priority": 99999999999999999999999', 422),
    ],
)  # fmt: skip
async def test_a_body_that_does_not_fit_is_refused(
    api: httpx.AsyncClient, desk: PaperDesk, body: str, status: int
) -> None:
    answer = await api.post(TASKS, content=body, headers={"Content-Type": "application/json"})

    assert refused(answer)[0] == status
    assert desk.requests == []


async def test_bytes_that_are_no_text_are_refused(api: httpx.AsyncClient) -> None:
    answer = await api.post(TASKS, content=b'{"action": "shop.resize", "arguments": {"path": "\xff\xfe"}}')

    assert refused(answer) == (400, "Undecodable")


async def test_a_misspelt_field_is_named(api: httpx.AsyncClient) -> None:
    answer = await api.post(TASKS, json={"action": "shop.resize", "options": {"tiemout": 5}})

    assert "`tiemout`, at `$.options`" in answer.json()["error"]["message"]


@pytest.mark.parametrize("count", [0, 1001])
async def test_a_batch_has_one_to_a_thousand_tasks(api: httpx.AsyncClient, count: int) -> None:
    answer = await api.post(f"{TASKS}/batch", json={"requests": [{"action": "shop.resize"}] * count})

    assert refused(answer) == (422, "TypeMismatch")


async def test_a_body_of_another_content_type_is_refused_with_the_remedy(api: httpx.AsyncClient) -> None:
    answer = await api.post(TASKS, data={"action": "shop.resize"})

    assert refused(answer) == (415, "WrongContentType")
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize("size_bytes", [200_000, 5_000_000])
async def test_a_body_over_the_limit_is_refused_and_the_sender_hears_it(
    server: httpx.AsyncClient, size_bytes: int
) -> None:
    body = json.dumps({"action": "shop.resize", "arguments": {"path": "x" * size_bytes}})

    assert refused(await server.post(TASKS, content=body)) == (413, "PayloadTooLarge")


async def test_a_body_that_never_ends_is_cut_off(server: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "BODY_WITHIN_S", 0.1)
    assert server.base_url.port is not None
    reader, writer = await asyncio.open_connection(server.base_url.host, server.base_url.port)
    head = f"POST {TASKS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 100\r\n\r\n"

    writer.write(head.encode() + b'{"action"')

    assert (await reader.readline()).split()[1] == b"408"
    writer.close()


async def test_ids_and_action_together_are_refused(api: httpx.AsyncClient) -> None:
    answer = await api.post("/api/v1/dead/redrive", json={"ids": ["a"], "action": "shop.resize"})

    assert refused(answer) == (422, "SettingError")


# --- Queries and paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=501", "limit=x", "limit=1.5", "limit=", "state=lost", "outcome=good", "action=resize",
     "sate=ended", "state=null", "cursor=", "cursor=a%20b", "limit=1&limit=2", "action=shop.a%00b"],
)  # fmt: skip
async def test_a_query_that_does_not_fit_is_refused(api: httpx.AsyncClient, query: str) -> None:
    assert refused(await api.get(f"{TASKS}?{query}")) == (422, "TypeMismatch")


@pytest.mark.parametrize("wait", ["-1", "61", "NaN", "inf", "soon"])
async def test_a_wait_is_between_0_and_60_seconds(api: httpx.AsyncClient, wait: str) -> None:
    assert refused(await api.get(f"{TASKS}/some-id/result", params={"wait": wait})) == (422, "TypeMismatch")


async def test_an_unknown_path_and_a_wrong_method_are_told_in_the_same_shape(api: httpx.AsyncClient) -> None:
    assert refused(await api.get("/api/v1/taks")) == (404, "UnknownPath")
    assert refused(await api.get("/api/v1/tasks/")) == (404, "UnknownPath")

    answer = await api.put(TASKS)

    assert refused(answer) == (405, "WrongMethod")
    assert answer.headers["allow"] == "GET, POST"
    assert (await api.get(f"{TASKS}/batch")).status_code == 404  # no task of that id
    assert (await api.put(f"{TASKS}/batch")).headers["allow"] == "POST"


# --- Errors of the desk -----------------------------------------------------------------------------------

MAPPED: list[tuple[Exception, int]] = [
    (errors.UnknownAction("shop.resize"), 404),
    (errors.UnknownTask("x"), 404),
    (errors.ArgumentsRefused("no"), 422),
    (errors.SettingError("no"), 422),
    (errors.PayloadTooLarge("arguments", 2, 1), 413),
    (errors.Undecodable("no"), 400),
    (errors.WrongUse("no"), 400),
    (errors.BrokerUnreachable("no link"), 503),
    (errors.BrokerBlocked("alarm"), 503),
    (errors.StoreUnreachable("no link"), 503),
    (errors.DeliveryUnknown("broke"), 504),
    (errors.StoreFull("disk full"), 507),
]


@pytest.mark.parametrize(("error", "status"), MAPPED, ids=lambda value: type(value).__name__)
async def test_an_error_gets_the_status_of_its_class(
    api: httpx.AsyncClient, desk: PaperDesk, error: Exception, status: int
) -> None:
    desk.fails_with(error)

    answer = await api.post(TASKS, json={"action": "shop.resize"})

    assert refused(answer) == (status, type(error).__name__)
    assert answer.json()["error"]["message"] == str(error)
    assert ("retry-after" in answer.headers) == (status in (503, 507))


def test_every_error_has_a_status_and_only_the_servers_own_troubles_are_above_499() -> None:
    def below(kind: type[errors.CanoaError]) -> list[type[errors.CanoaError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in below(child))]

    for kind in below(errors.WrongUse):
        status = status_of(kind.__new__(kind))
        assert 400 <= status < 500 or (status == 503 and STATUS[kind] == 503), kind


async def test_a_bug_of_ours_is_a_500_that_tells_nothing(
    server: httpx.AsyncClient, desk: PaperDesk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.fails_with(RuntimeError("the password is hunter2"))

    answer = await server.get(TASKS)

    assert refused(answer) == (500, "InternalError")
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text
    desk.fails_with(None)
    assert (await server.get(TASKS)).status_code == 200


def test_what_a_submit_may_say_is_what_the_desk_takes() -> None:
    from dataclasses import fields

    from canoa.recorder.routed_views import RoutedRequest
    from canoa.recorder.views import Request, SubmitOptions

    def names(view: Any) -> list[str]:
        return [each.name for each in fields(view)]

    assert list(asked.Options.__struct_fields__) == names(SubmitOptions)
    of_either = {*names(Request), *names(RoutedRequest), "dispatch"}
    assert set(asked.Submit.__struct_fields__) == of_either
