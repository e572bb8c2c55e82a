"""Rates and keys are read as they are written; a worker asks rarely, and reserves no more than it soon needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import SettingError
from canoa.execution import limits
from canoa.execution.policy import Concurrency, Policy, Rate

intervals_ms = st.floats(0.01, 1e9)


@pytest.mark.parametrize(
    ("text", "per_ms"), [("1/s", 1000), ("10/s", 100), ("100/m", 600), ("60/h", 60_000), ("1/d", 86_400_000)]
)
def test_a_rate_is_a_number_per_unit(text: str, per_ms: float) -> None:
    assert Rate(text).per_ms == per_ms


@pytest.mark.parametrize(
    "text", ["", "10", "0/s", "-1/s", "10/w", "10 / s", "1.5/s", "10/s burst 3", "9999999999/s", 10]
)
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingError, match=r"rate=.*: use a number per s, m, h or d, such as '10/s' or '100/m'"):
        Rate(text)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Rate("1/s", burst=0), "rate.burst is 0; use 1"),
        (
            lambda: Rate("1/s", scope="node"),  # type: ignore[arg-type]
            "scope='node': use 'global'",
        ),
        (lambda: Concurrency("{id}", limit=0), "concurrency.limit is 0; use 1"),
        (
            lambda: Concurrency("{id}", scope="node"),  # type: ignore[arg-type]
            "scope='node': use 'global'",
        ),
        (
            lambda: Policy(rate=5),  # type: ignore[arg-type]
            r"rate is 5; use text such as '100/m', or Rate\('100/m', burst=10\)",
        ),
        (
            lambda: Policy(concurrency=5),  # type: ignore[arg-type]
            "concurrency is 5; use text, or Concurrency",
        ),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(make: object, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        make()  # type: ignore[operator]


@given(st.integers(1, 10_000), intervals_ms, st.integers(1, 1000))
def test_a_worker_asks_for_what_waits_and_for_what_starts_soon(waiting: int, per_ms: float, burst: int) -> None:
    count = limits.starts_at_once(waiting, per_ms, burst)

    assert 1 <= count <= waiting
    assert (count - 1) * per_ms <= limits.NEAR_MS
    assert count == waiting or count * per_ms >= limits.ASK_EVERY_MS * 0.999


@given(intervals_ms)
def test_rare_starts_are_looked_for_from_further_away(per_ms: float) -> None:
    assert limits.NEAR_MS <= limits.ahead_ms(per_ms) <= 30_000
    assert 1 <= limits.come_back_s(per_ms) <= 600
    assert limits.held_ahead(per_ms, 1) >= 2


def test_a_key_is_filled_with_the_arguments() -> None:
    assert limits.fields_of("customer:{id}/{region}") == ["id", "region"]
    assert limits.fields_of("nightly") == []
    assert limits.fields_of("{{{id}}}") == ["id"]
    assert limits.key_of("customer:{id}/{region}", {"id": 7, "region": None}) == "customer:7/None"
    assert limits.key_of("{{{id}}}", {"id": "a{b}"}) == "{a{b}}"


@given(st.text(min_size=300, max_size=400), st.text(min_size=300, max_size=400))
def test_long_keys_are_cut_and_stay_apart(one: str, other: str) -> None:
    keys = {limits.key_of("{id}", {"id": value}) for value in (one, other)}

    assert len(keys) == len({one, other})
    assert all(len(key) <= limits.MAX_KEY_CHARS for key in keys)


@pytest.mark.parametrize(
    "template", ["{id.owner}", "{id[0]}", "{id!r}", "{id:>10}", "{}", "{0}", "{id", "id}", "{id }", "{__class__.x}"]
)
def test_a_key_takes_plain_names_only(template: str) -> None:
    with pytest.raises(SettingError, match="concurrency="):
        Concurrency(template)
