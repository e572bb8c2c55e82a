"""The consolidated result of a task stays what listeners were told it is, byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from canoa.execution.outcome import Outcome
from canoa.execution.plan_inputs import MAX_JOINED_BYTES
from canoa.execution.plan_result import SKIPPED, StepReport, consolidated
from canoa.vocabulary import ActionName

GOLDEN = Path(__file__).parents[2] / "golden" / "plans"

FETCH = StepReport(
    name="fetch",
    action=ActionName("actions.fetch_data"),
    status=Outcome.OK,
    output=b'{"values":[0.92,0.95]}',
    node="gw-7",
    attempts=2,
    queued_ms=12,
    started_ms=1_700_000_000_012,
    ended_ms=1_700_000_000_112,
)
PF = StepReport(
    name="pf",
    action=ActionName("actions.fator_potencia"),
    status=Outcome.OK,
    output=b"0.10",
    node="cloud-1",
    attempts=1,
    queued_ms=0,
    started_ms=1_700_000_000_120,
    ended_ms=1_700_000_000_150,
)


def published(*steps: StepReport, **more: Any) -> bytes:
    facts = {"status": Outcome.OK, "output": b"0.10", "created_ms": 1_700_000_000_000, "ended_ms": 1_700_000_000_160}
    return consolidated("streq-1234567890", "exemplo", steps=steps, **{**facts, **more})


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.json").read_text()


def shown(body: bytes) -> str:
    return msgspec.json.format(body, indent=2).decode() + "\n"


def test_a_task_that_succeeded_is_published_with_every_step() -> None:
    assert shown(published(FETCH, PF)) == golden("consolidated_ok")


def test_a_task_that_failed_shows_what_it_had_and_what_went_wrong() -> None:
    failed = msgspec.structs.replace(PF, status=Outcome.FAILED, output=None, attempts=4, error="no voltage")
    skipped = StepReport(name="report", action=ActionName("actions.report"), status=SKIPPED)

    body = published(FETCH, failed, skipped, status=Outcome.FAILED, output=None, error="step 'pf': no voltage")

    assert shown(body) == golden("consolidated_failed")


def test_what_was_undone_is_told_with_its_step() -> None:
    refund = StepReport(
        name="fetch.compensation", action=ActionName("actions.drop_data"), status=Outcome.OK, attempts=1
    )

    body = json.loads(published(msgspec.structs.replace(FETCH, compensation=refund), PF, status=Outcome.FAILED))

    told = body["steps"]["fetch"].pop("compensation")
    assert (told["action"], told["status"]) == ("urn:sapparchi:Action:actions.drop_data", "ok")
    assert body["steps"] == json.loads(published(FETCH, PF))["steps"]


def test_a_clock_set_back_gives_no_negative_time() -> None:
    body = json.loads(published(msgspec.structs.replace(PF, ended_ms=0), ended_ms=0))

    assert (body["processing_time"], body["steps"]["pf"]["processing_time"]) == (0, 0)


def test_what_no_broker_would_take_goes_out_without_outputs_and_says_so() -> None:
    large = msgspec.structs.replace(FETCH, output=b'"' + b"x" * MAX_JOINED_BYTES + b'"')

    body = json.loads(published(large, PF))

    assert body["outputs_left_out"] is True
    assert (body["output"], body["steps"]["fetch"]["output"], body["steps"]["pf"]["output"]) == (None, None, None)
    assert body["steps"]["fetch"]["status"] == "ok"
