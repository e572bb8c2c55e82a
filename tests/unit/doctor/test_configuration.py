"""Settings are judged together: what they name must be there, and what does not go together is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from canoa.doctor.configuration import look
from canoa.doctor.finding import Finding, Verdict
from canoa.settings import survey

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "correct-horse"


def judged(folder: Path, **arguments: object) -> list[Finding]:
    return look(survey(arguments, {}, folder=folder))


def test_valid_settings_are_one_line_that_says_where_they_came_from(tmp_path: Path) -> None:
    (tmp_path / "canoa.toml").write_text("heartbeat_s = 5")

    (finding,) = look(survey({"broker": "amqp://host"}, {"CANOA_LAYER": "EDGE"}, folder=tmp_path), ["CANOA_LAYER"])

    assert finding == Finding(
        check="settings", verdict=Verdict.OK, found="valid; from argument, canoa.toml, environment"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"broker": f"redis://u:{PASSWORD}@host"}, "has a scheme nobody speaks; use amqp://"),
        ({"broker": f"amqp://u:{PASSWORD}@host:port"}, "the port of the broker URL is not a number"),
        ({"broker": "amqps://host", "tls_ca": "gone.pem"}, "tls_ca names 'gone.pem', which cannot be read"),
        ({"broker": "amqps://host", "tls_key": "gone.pem"}, "tls_key is set and tls_cert is not"),
        ({"store": f"mysql://u:{PASSWORD}@host/db"}, "the store 'mysql://u:***@host/db' cannot be used"),
        ({"api": f"u:{PASSWORD}@host:8420"}, "is no address of an API; write http://127.0.0.1:8420"),
        ({"node_endpoints": "loopback,10.0.0.0/99"}, "node_endpoints has '10.0.0.0/99'"),
    ],
)
def test_what_cannot_work_is_a_problem_without_secrets(tmp_path: Path, arguments: dict[str, object], said: str) -> None:
    (finding,) = judged(tmp_path, **arguments)

    assert finding.verdict is Verdict.PROBLEM
    assert said in finding.found
    assert PASSWORD not in f"{finding}"


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    found = judged(tmp_path, broker="redis://", store="mysql://", api="x", tls_ca="gone")

    assert [finding.verdict for finding in found if finding.verdict is not Verdict.WARNING] == [Verdict.PROBLEM] * 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"broker": "amqps://host", "tls_verify": False}, "the broker's certificate is not verified"),
        ({"broker": "amqp://host", "tls_ca": __file__}, "certificates are named, and the broker's URL is without TLS"),
        ({"node_endpoints": "loopback,::/0"}, "whoever can register a node can make managers call any address"),
    ],
)
def test_what_is_unwise_is_a_warning(tmp_path: Path, arguments: dict[str, object], said: str) -> None:
    found = judged(tmp_path, **arguments)

    assert any(finding.verdict is Verdict.WARNING and said in finding.found for finding in found)


def test_a_variable_that_looks_like_ours_and_is_not_is_a_warning(tmp_path: Path) -> None:
    names = ["CANOA_BROKR", "CANOA_APP", "CANOA_BROKER_FILE", "PATH", "CANOA_SERVICE_PORT_8420"]

    brokr, service = look(survey({}, {}, folder=tmp_path), names)

    assert (brokr.verdict, brokr.remedy) == (Verdict.WARNING, "did you mean CANOA_BROKER?")
    assert service.remedy == "remove it, unless another program reads it"
