"""What is measured on machine and broker, and what a doctor says about it."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from canoa.broker.port import Depth
from canoa.doctor import machine, management
from canoa.doctor.broker import judge_overview, judge_queue, judge_rights, judge_version
from canoa.doctor.finding import Finding, Verdict
from canoa.doctor.limits import judge
from canoa.doctor.management import Overview, Silence
from canoa.doctor.rights import Rights

if TYPE_CHECKING:
    from pathlib import Path

OK, WARNING, PROBLEM = Verdict.OK, Verdict.WARNING, Verdict.PROBLEM
NO_LIMIT = resource.RLIM_INFINITY


# --- Machine ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("soft", "hard", "verdict", "said"),
    [
        (1024, 4096, OK, "at most 1,024"),
        (NO_LIMIT, NO_LIMIT, OK, "no limit"),
        (256, 4096, WARNING, "ulimit -n 1024; for a service, LimitNOFILE=1024 in its unit"),
        (256, 512, WARNING, "ulimit -n 512"),
        (256, NO_LIMIT, WARNING, "ulimit -n 1024"),
    ],
)
def test_few_open_files_are_a_warning(soft: int, hard: int, verdict: Verdict, said: str) -> None:
    finding = machine.judge_open_files(soft, hard)

    assert finding.verdict is verdict
    assert said in finding.found + finding.remedy


@pytest.mark.parametrize(
    ("free_bytes", "verdict"), [(50 << 30, OK), (1 << 30, OK), ((1 << 30) - 1, WARNING), ((100 << 20) - 1, PROBLEM)]
)
def test_a_disk_that_runs_full_is_told_in_time(free_bytes: int, verdict: Verdict) -> None:
    assert machine.judge_disk("/data", free_bytes).verdict is verdict


def test_the_disk_of_a_folder_that_is_not_there_yet_is_that_of_the_next_above(tmp_path: Path) -> None:
    assert f"free in {tmp_path / 'a' / 'b'}" in machine.disk(tmp_path / "a" / "b").found


@pytest.mark.parametrize(
    ("jumped_s", "ahead_s", "verdict", "found"),
    [
        (0.0, {}, OK, "steady; nobody there to compare it with"),
        (0.0, {"broker": None}, OK, "steady; nobody there to compare it with"),
        (0.0, {"broker": 0.4, "store": None}, OK, "as the broker's, within 2 s"),
        (0.0, {"broker": 0.4, "store": -3.0}, WARNING, "3 s behind the store"),
        (0.0, {"broker": 31.0, "store": -3.0}, PROBLEM, "31 s ahead of the broker"),
        (-3600.0, {"broker": 0.0}, WARNING, "it was set by -3600.0 s during this examination"),
    ],
)
def test_a_clock_is_compared_with_those_there_are(
    jumped_s: float, ahead_s: dict[str, float | None], verdict: Verdict, found: str
) -> None:
    finding = machine.judge_clock(jumped_s, ahead_s)

    assert (finding.verdict, finding.found) == (verdict, found)


def test_a_clock_that_is_set_meanwhile_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = machine.Watch()
    assert abs(watch.jumped_s()) < machine.JUMP_S

    monkeypatch.setattr("time.time", lambda: 0.0)

    assert watch.jumped_s() < -machine.JUMP_S


def test_half_an_extra_is_a_warning_and_none_of_it_is_not() -> None:
    requirements = [
        "msgspec>=0.19",
        "fastapi>=0.115; extra == 'server'",
        'uvicorn>=0.34 ; python_version > "3" and extra == "server"',
        'pytest>=8; extra == "testing"',
        'canoa[server]; extra == "all"',
    ]
    assert machine.parts_of_extras(requirements) == {"server": ["fastapi", "uvicorn"], "testing": ["pytest"]}

    installed, half = machine.judge_extras(
        {"server": {"fastapi": True, "uvicorn": False}, "testing": {"pytest": False}}
    )

    assert (installed.verdict, installed.found) == (OK, "installed: none; not installed: testing")
    assert half == Finding(
        check="extras",
        verdict=WARNING,
        found="server is there in part: uvicorn is missing",
        remedy="pip install 'canoa[server]'",
    )


def test_what_is_installed_here_is_whole() -> None:
    assert [finding.verdict for finding in machine.extras()] == [OK]


# --- Broker -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("product", "version", "verdict"),
    [
        ("RabbitMQ", "3.10.8", OK),
        ("RabbitMQ", "3.13.7", OK),
        ("RabbitMQ", "4.2.0-rc.1", OK),
        ("RabbitMQ", "3.9.29", PROBLEM),
        ("RabbitMQ", "5.0.0", WARNING),
        ("RabbitMQ", "?", WARNING),
        ("LavinMQ", "2.1.0", WARNING),
    ],
)
def test_versions_outside_of_those_tested_are_told(product: str, version: str, verdict: Verdict) -> None:
    finding = judge_version({"product": product, "version": version})

    assert finding.verdict is verdict
    assert bool(finding.remedy) == (verdict is not OK)


def test_only_what_waits_for_nobody_is_told() -> None:
    assert judge_queue("canoa.submit", Depth(5, 1)) is None
    assert judge_queue("canoa.dead", Depth(0, 0)) is None

    dead, forgotten = judge_queue("canoa.dead", Depth(5, 0)), judge_queue("canoa.results", Depth(1200, 0))

    assert dead is not None
    assert (dead.verdict, dead.remedy) == (WARNING, "look at them: canoa dead list")
    assert forgotten is not None
    assert forgotten.found == "1,200 messages wait in canoa.results, and no recorder runs"


def test_an_alarm_is_a_problem() -> None:
    overview = Overview(url="http://host", plugins=["rabbitmq_mqtt"], alarms=["memory of a", "disk of b"])

    plugins, alarms = judge_overview(overview, ())

    assert plugins.found == "rabbitmq_mqtt"
    assert (alarms.verdict, alarms.found) == (PROBLEM, "memory of a, disk of b")


def test_a_management_api_that_does_not_answer_is_no_fault() -> None:
    (finding,) = judge_overview(Silence("http://host:15672", "Connection refused"), ())

    assert finding.verdict is OK
    assert "http://host:15672 (Connection refused); --management" in finding.found


def test_a_user_without_a_role_is_a_problem_and_one_with_some_is_told_what_it_lacks() -> None:
    client = Rights(configure=("^canoa\\.(reply|mark|probe|events)\\.",), write=(".*",), read=(".*",))
    nobody = Rights(configure=("^$",), write=(".*",), read=(".*",))

    assert judge_rights(nobody, ()).verdict is PROBLEM
    some = judge_rights(client, ["shop"])
    assert some.verdict is WARNING
    assert some.found.startswith("the user may act as client; not as worker (lacks configure canoa.cancel, ")
    assert "and 8 more" in some.found
    assert some.remedy == "canoa doctor --permissions prints what each role needs"


@pytest.mark.parametrize(
    ("date", "ahead_s"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 9.5),
        ("yesterday", None),
        ("", None),
        (None, None),
    ],
)
def test_the_lead_over_a_server_is_read_from_its_answer(date: str | None, ahead_s: float | None) -> None:
    theirs_s = 784111777.0

    assert management.ahead_s(date, theirs_s + 9, theirs_s + 11) == ahead_s


@pytest.mark.parametrize(
    ("url", "is_one"), [("http://host:15672", True), ("https://[::1]", True), ("host:15672", False), ("ftp://h", False)]
)
def test_a_management_address_is_http(url: str, is_one: bool) -> None:
    assert management.is_http(url) is is_one


# --- Actions ------------------------------------------------------------------------------------------


def test_actions_that_may_outlast_the_brokers_patience_are_told_one_by_one() -> None:
    (fine,) = judge({"shop.a": 30.0, "shop.b": 1800.0})
    assert (fine.verdict, fine.found) == (OK, "2 actions, all within RabbitMQ's 30 minutes")

    long, endless = judge({"shop.a": 30.0, "shop.long": 3600.0, "shop.endless": None})

    assert (long.verdict, endless.verdict) == (WARNING, WARNING)
    assert "shop.long may run 3600 s; RabbitMQ by default takes a task back after 1800 s" in long.found
    assert "consumer_timeout = 3660000 in rabbitmq.conf" in long.remedy
    assert "shop.endless may run for ever" in endless.found
