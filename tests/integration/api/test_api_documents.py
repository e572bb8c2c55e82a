"""The OpenAPI document and the page made of it."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from canoa.api.app import Served, new_api
from canoa.api.readiness import probing

if TYPE_CHECKING:
    import httpx
    from tests.integration.api.paper_desk import PaperDesk

    from canoa import Canoa


@pytest.fixture
async def document(api: httpx.AsyncClient) -> dict[str, Any]:
    answer = await api.get("/openapi.json")
    found: dict[str, Any] = answer.json()
    return found


AS_PUBLISHED = ("manager_health", "503")
"""Nodes expect `{"status": "DOWN"}`."""


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for methods in document["paths"].values() for operation in methods.values()]


def test_every_operation_has_an_id_a_tag_a_summary_and_its_answers(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for operation in operations(document)]

    assert len(ids) == len(set(ids)) == 31
    tags = {tag["name"] for tag in document["tags"]}
    for operation in operations(document):
        assert operation["summary"], operation
        assert set(operation["tags"]) < tags, operation
        assert "Successful Response" not in str(operation), operation
        assert min(operation["responses"]) < "300", operation


def test_every_refusal_has_the_one_shape(document: dict[str, Any]) -> None:
    for operation in operations(document):
        for status, answer in operation["responses"].items():
            if status >= "400" and (operation["operationId"], status) != AS_PUBLISHED:
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Refusal"}, operation["operationId"]


def test_all_but_the_probes_ask_for_the_token(document: dict[str, Any]) -> None:
    open_to_all = [each["operationId"] for each in operations(document) if each.get("security") == []]

    assert document["security"] == [{"token": []}]
    assert sorted(open_to_all) == ["healthz", "manager_health", "readyz", "register_node", "take_result"]


def test_no_reference_leads_nowhere(document: dict[str, Any]) -> None:
    named = set(re.findall(r"#/components/schemas/(\w+)", str(document)))

    assert named <= set(document["components"]["schemas"])


def test_bodies_refuse_what_is_not_listed(document: dict[str, Any]) -> None:
    for name in ("Submit", "Options", "Batch", "Redrive", "CreateToken"):
        assert document["components"]["schemas"][name]["additionalProperties"] is False


async def test_the_page_shows_every_operation_and_fetches_nothing_from_elsewhere(
    api: httpx.AsyncClient, document: dict[str, Any]
) -> None:
    page = (await api.get("/docs")).text

    for path in document["paths"]:
        assert path in page
    for shape in document["components"]["schemas"]:
        assert f'id="{shape}"' in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"?(https?:)?//", page)


async def test_to_document_itself_takes_no_start_longer_than_150_ms(app: Canoa, desk: PaperDesk) -> None:
    """In processor time, the best of three: other programs on the machine do not count."""
    async with probing(partial(app.new_broker, "readiness")) as readiness:
        served = Served(app=app, readiness=readiness, desk=desk)
        times_s = []
        for _ in range(3):
            began_s = time.process_time()
            new_api(served, hosts=["localhost"], token="x" * 32)
            times_s.append(time.process_time() - began_s)

    assert min(times_s) < 0.150
